"""imec's GPULab, through its own client `gpulab-cli` (written for version 3.11): submit, inspect, and cancel jobs.

The client reads the certificate that GPULAB_CERT names; gpuyard never opens it. Command lines contain only job ids and
project names; job definitions are passed in a file.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.deploy.clouds.proxy import ssh_proxy_command
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.printable import make_printable
from gpuyard.web_client import parse_json

CERTIFICATE_VARIABLE = "GPULAB_CERT"
WAIT_SCALE_VARIABLE = "GPUYARD_GPULAB_WAIT_SCALE"
_PROGRAM = "gpulab-cli"
_TIMEOUT_SECONDS = 120
_POLL_SECONDS = 10.0
_CANCEL_POLLS = 60
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_FINAL_STATUSES = frozenset(
    {"CANCELLING", "CANCELLED", "FINISHED", "DELETED", "FAILED", "MUSTHALT", "HALTING", "HALTED"}
)


@dataclass(frozen=True)
class SubmittedJob:
    """A job as GPULab reports it."""

    id: str
    name: str
    status: str
    address: str = ""
    port: int = 22
    user: str = ""
    proxy: tuple[str, int, str] | None = None
    """Host, port, and user of the gateway, if GPULab names one."""

    @property
    def finished(self) -> bool:
        return self.status in _FINAL_STATUSES

    @property
    def ready(self) -> bool:
        return self.status == "RUNNING" and bool(self.address and self.user)

    def __str__(self) -> str:
        return f"{self.name} (job {self.id}, {self.status.lower()})"


@dataclass(frozen=True)
class Gpulab:
    """A client that acts for one user."""

    program: str
    wait_scale: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def from_environment(cls) -> "Gpulab":
        """Find the client and the certificate. Raises if either is missing."""
        program = shutil.which(_PROGRAM)
        if program is None:
            raise MissingRequirement(
                "gpulab-cli not found; install it with: pipx install imecilabt-gpulab-cli"
            )
        certificate = os.environ.get(CERTIFICATE_VARIABLE)
        if not certificate:
            raise MissingRequirement(
                f"no GPULab certificate: set {CERTIFICATE_VARIABLE} to the path of your PEM file"
            )
        if not Path(certificate).is_file():
            raise MissingRequirement(
                f"{CERTIFICATE_VARIABLE} is set to {certificate!r}, which is not a file"
            )
        return cls(program, float(os.environ.get(WAIT_SCALE_VARIABLE, "1")))

    def submit(self, definition: str, project: str) -> str:
        """Submit a job and return its id."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write(definition)
            file.flush()
            words = self._run("submit", "--project", project, file.name).split()
        if not words or not _ID.fullmatch(words[-1]):
            raise GpuyardError(
                "gpulab-cli submit did not print a job id; look for the job with: gpulab-cli jobs"
            )
        return words[-1]

    def job(self, job_id: str) -> SubmittedJob:
        return _parse_job(self._run_for_json("jobs", "--raw", job_id))

    def jobs(self) -> list[SubmittedJob]:
        """Return this user's unfinished jobs."""
        entries = self._run_for_json("jobs", "--strict-user", "--raw", "--max-count", "200")
        if not isinstance(entries, list):
            raise GpuyardError("cannot parse the job list of gpulab-cli: expected a JSON list")
        return [job for job in map(_parse_job, entries) if not job.finished]

    def cancel(self, job_id: str) -> None:
        """Cancel a job and wait until it has finished."""
        if self.job(job_id).finished:
            return
        self._run("cancel", job_id)
        for _ in range(_CANCEL_POLLS):
            if self.job(job_id).finished:
                return
            self.pause()
        raise GpuyardError(
            f"job {job_id} was canceled but still runs; check it with: gpulab-cli jobs {job_id}"
        )

    def pause(self) -> None:
        self.sleep(_POLL_SECONDS * self.wait_scale)

    def _run_for_json(self, *arguments: str) -> Any:
        try:
            return parse_json(self._run(*arguments))
        except ValueError:
            raise GpuyardError(f"the output of gpulab-cli {arguments[0]} is not JSON") from None

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
            raise GpuyardError(
                f"gpulab-cli {arguments[0]} timed out after {_TIMEOUT_SECONDS} s"
            ) from None
        if done.returncode != 0:
            output = " ".join((done.stderr or done.stdout).split())[:400]
            raise GpuyardError(f"gpulab-cli {arguments[0]} failed: {make_printable(output)}")
        return done.stdout


def _parse_job(entry: Any) -> SubmittedJob:
    try:
        state: Mapping[str, Any] = entry.get("state") or {}
        resources: Mapping[str, Any] = state.get("resources") or {}
        job_id = str(entry["uuid"])
        if not _ID.fullmatch(job_id):
            raise ValueError(job_id)
        proxy = None
        if resources.get("sshProxyHost"):
            host, user = _word(resources["sshProxyHost"]), _word(resources["sshProxyUsername"])
            proxy = (host, int(resources.get("sshProxyPort") or 22), user)
        return SubmittedJob(
            job_id,
            make_printable(str(entry["name"])),
            str(state["status"]).replace(" ", "").upper(),
            _word(resources["sshHost"]) if resources.get("sshHost") else "",
            int(resources.get("sshPort") or 22),
            _word(resources["sshUsername"]) if resources.get("sshUsername") else "",
            proxy,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise GpuyardError("cannot parse a job in the output of gpulab-cli") from None


def _word(text: Any) -> str:
    """Check a value that will be written to an ssh configuration."""
    if not isinstance(text, str) or not _WORD.fullmatch(text):
        raise ValueError(text)
    return text


def proxy_command(job: SubmittedJob) -> str:
    """Return the ProxyCommand for a job, or an empty string if it is reachable directly."""
    if job.proxy is None:
        return ""
    return ssh_proxy_command(CERTIFICATE_VARIABLE, job.proxy, job.address, job.port)
