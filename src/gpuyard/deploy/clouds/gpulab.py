"""imec's GPULab by its own client, `gpulab-cli` (written for 3.11): submit, look, cancel.

The client reads the certificate that GPULAB_CERT names; gpuyard never opens it. What it is asked is on no command line
but the identity of a job and the name of a project.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.deploy.clouds.way_in import through
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.printable import printable
from gpuyard.web_client import json_of

CERTIFICATE_VARIABLE = "GPULAB_CERT"
HASTE_VARIABLE = "GPUYARD_GPULAB_HASTE"
_PROGRAM = "gpulab-cli"
_TIMEOUT_SECONDS = 120
_POLL_SECONDS = 10.0
_END_POLLS = 60
_IDENTITY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_OVER = frozenset(
    {"CANCELLING", "CANCELLED", "FINISHED", "DELETED", "FAILED", "MUSTHALT", "HALTING", "HALTED"}
)


@dataclass(frozen=True)
class SubmittedJob:
    """One that GPULab knows."""

    id: str
    name: str
    status: str
    address: str = ""
    port: int = 22
    user: str = ""
    proxy: tuple[str, int, str] | None = None
    """Host, port and user of the way in, where there is one."""

    @property
    def over(self) -> bool:
        return self.status in _OVER

    @property
    def ready(self) -> bool:
        return self.status == "RUNNING" and bool(self.address and self.user)

    def __str__(self) -> str:
        return f"{self.name} (job {self.id}, {self.status.lower()})"


@dataclass(frozen=True)
class Gpulab:
    """One user's."""

    program: str
    haste: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of_user(cls) -> "Gpulab":
        """Raises where there is no client, or no certificate is named."""
        program = shutil.which(_PROGRAM)
        if program is None:
            raise MissingRequirement(
                "GPULab is asked by gpulab-cli, which is not installed; pipx install imecilabt-gpulab-cli"
            )
        if not os.environ.get(CERTIFICATE_VARIABLE):
            raise MissingRequirement(
                f"GPULab needs your certificate: set {CERTIFICATE_VARIABLE} to the path of its PEM file"
            )
        return cls(program, float(os.environ.get(HASTE_VARIABLE, "1")))

    def submit(self, definition: str, project: str) -> str:
        """The new job's identity."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write(definition)
            file.flush()
            said = self._run("submit", "--project", project, file.name)
        words = said.split()
        if not words or not _IDENTITY.fullmatch(words[-1]):
            raise GpuyardError("gpulab-cli did not say which job it has submitted")
        return words[-1]

    def job(self, identity: str) -> SubmittedJob:
        return _job(self._document("jobs", "--raw", identity))

    def jobs(self) -> list[SubmittedJob]:
        """This user's that are not over."""
        listed = self._document("jobs", "--strict-user", "--raw", "--max-count", "200")
        if not isinstance(listed, list):
            raise GpuyardError("gpulab-cli's list of jobs can't be understood")
        return [job for job in map(_job, listed) if not job.over]

    def cancel(self, identity: str) -> None:
        self._run("cancel", identity)

    def end(self, identity: str) -> None:
        """Cancel it and see that it is over."""
        if self.job(identity).over:
            return
        self.cancel(identity)
        for _ in range(_END_POLLS):
            if self.job(identity).over:
                return
            self.pause()
        raise GpuyardError(f"job {identity} was cancelled and is still there")

    def pause(self) -> None:
        self.sleep(_POLL_SECONDS * self.haste)

    def _document(self, *arguments: str) -> Any:
        try:
            return json_of(self._run(*arguments))
        except ValueError:
            raise GpuyardError(f"gpulab-cli {arguments[0]} does not answer in JSON") from None

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                (self.program, *arguments),
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise GpuyardError(f"gpulab-cli {arguments[0]} did not end") from None
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())[:400]
            raise GpuyardError(f"gpulab-cli {arguments[0]} failed: {printable(said)}")
        return done.stdout


def _job(entry: Any) -> SubmittedJob:
    try:
        state: Mapping[str, Any] = entry.get("state") or {}
        there: Mapping[str, Any] = state.get("resources") or {}
        identity = str(entry["uuid"])
        if not _IDENTITY.fullmatch(identity):
            raise ValueError(identity)
        proxy = None
        if there.get("sshProxyHost"):
            host, user = _word(there["sshProxyHost"]), _word(there["sshProxyUsername"])
            proxy = (host, int(there.get("sshProxyPort") or 22), user)
        return SubmittedJob(
            identity,
            printable(str(entry["name"])),
            str(state["status"]).replace(" ", "").upper(),
            _word(there["sshHost"]) if there.get("sshHost") else "",
            int(there.get("sshPort") or 22),
            _word(there["sshUsername"]) if there.get("sshUsername") else "",
            proxy,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise GpuyardError("gpulab-cli's answer about a job can't be understood") from None


def _word(text: Any) -> str:
    """It comes to stand in ssh's configuration."""
    if not isinstance(text, str) or not _WORD.fullmatch(text):
        raise ValueError(text)
    return text


def proxy_command(job: SubmittedJob) -> str:
    """By which ssh reaches it from outside; the way in takes the certificate's own key."""
    if job.proxy is None:
        return ""
    return through(CERTIFICATE_VARIABLE, job.proxy, job.address, job.port)
