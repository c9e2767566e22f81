"""Slices of testbeds that speak GENI's API, by jFed's command line (`experimenter-cli.jar`): create, look, delete.

Only the client reads the certificate that GPUYARD_JFED_PEM names. It is decrypted: a passphrase would have to stand on
a command line. What it is asked is in files, and on its command line are names of a slice and a project.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.printable import printable

JAR_VARIABLE = "GPUYARD_JFED_CLI"
PEM_VARIABLE = "GPUYARD_JFED_PEM"
HASTE_VARIABLE = "GPUYARD_JFED_HASTE"
_CREATE_SECONDS = 5400  # servers are installed anew
_ASK_SECONDS = 300
_POLL_SECONDS = 15.0
_END_POLLS = 40
_START_POLLS = 240
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,18}")  # of a slice, as GENI has it
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_STATUS = re.compile(r"has status ([A-Z_]+)")
_ABSENT = ("does not exist", "does not yet exist")
_NONE = "UNALLOCATED"
_FAILED = "FAIL"


@dataclass(frozen=True)
class Slice:
    """One that is asked for, or there."""

    name: str
    project: str
    request: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserMistake(
                f"{self.name!r} is not the name of a slice: 19 letters, digits and '-' at most"
            )
        if not _PROJECT.fullmatch(self.project):
            raise UserMistake(f"{self.project!r} is not the name of a project")


@dataclass(frozen=True)
class Jfed:
    """One user's."""

    java: str
    jar: Path
    certificate: Path
    haste: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of_user(cls) -> "Jfed":
        """Raises where there is no client, or no certificate is named."""
        java = shutil.which("java")
        if java is None:
            raise MissingRequirement("jFed's command line needs java, which is not installed")
        return cls(
            java,
            _named(JAR_VARIABLE, "jFed's experimenter-cli.jar"),
            _named(PEM_VARIABLE, "the decrypted PEM of your account"),
            float(os.environ.get(HASTE_VARIABLE, "1")),
        )

    def status(self, wanted: Slice) -> str | None:
        """READY, CHANGING and so on; None where it has no machines, whether or not its name is taken."""
        found = self._statuses(wanted)
        return next((one for one in found if one != "READY"), "READY") if found else None

    def create(self, wanted: Slice, hours: int) -> str:
        """The manifest, when all machines are ready."""
        options = ["--ssh-keys", "usercert,rspec", "--expiration-hours", str(hours)]
        if self._statuses(wanted) is None:
            options.append("--create-slice")
        return self._manifest("create", wanted, *options, seconds=_CREATE_SECONDS)

    def manifest(self, wanted: Slice) -> str:
        """Of one that is there."""
        return self._manifest("manifest", wanted)

    def ready(self, wanted: Slice) -> None:
        """Wait until it is."""
        for _ in range(_START_POLLS):
            status = self.status(wanted)
            if status == "READY":
                return
            if status is None or status == _FAILED:
                raise GpuyardError(f"slice {wanted.name} has failed")
            self._pause()
        raise GpuyardError(f"slice {wanted.name} is still not ready")

    def end(self, wanted: Slice) -> None:
        """Give its machines back, and see that they are."""
        if self.status(wanted) is None:
            return
        with _written(wanted) as request:
            self._run("delete", wanted, "--rspec", str(request))
        for _ in range(_END_POLLS):
            if self.status(wanted) is None:
                return
            self._pause()
        raise GpuyardError(f"slice {wanted.name} was deleted and its machines are still there")

    def _statuses(self, wanted: Slice) -> list[str] | None:
        """Of what it has on each testbed; None where there is no slice of this name."""
        with _written(wanted) as request:
            said = self._run("status", wanted, "--rspec", str(request), fails=True)
        if found := _STATUS.findall(said):
            return [one for one in found if one != _NONE]
        if any(words in said for words in _ABSENT):
            return None
        raise GpuyardError(f"jFed does not say how slice {wanted.name} is: {_short(said)}")

    def _manifest(
        self, command: str, wanted: Slice, *options: str, seconds: int = _ASK_SECONDS
    ) -> str:
        with _written(wanted) as request:
            answer = request.with_name("manifest.rspec")
            given = ("--rspec", str(request), "--manifest", str(answer), *options)
            said = self._run(command, wanted, *given, seconds=seconds)
            if not answer.exists():
                raise GpuyardError(f"jFed {command} has written no manifest: {_short(said)}")
            return files.read_text(answer)

    def _pause(self) -> None:
        self.sleep(_POLL_SECONDS * self.haste)

    def _run(
        self,
        command: str,
        wanted: Slice,
        *options: str,
        fails: bool = False,
        seconds: int = _ASK_SECONDS,
    ) -> str:
        """What it says. Of `status` that counts, whatever it exits with."""
        whose = ("-s", wanted.name, "-S", wanted.project, "-p", str(self.certificate))
        try:
            done = subprocess.run(
                (self.java, "-jar", str(self.jar), command, *whose, *options),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise GpuyardError(f"jFed {command} of slice {wanted.name} did not end") from None
        if done.returncode != 0 and not fails:
            raise GpuyardError(f"jFed {command} failed: {_short(done.stdout)}")
        return done.stdout


def _named(variable: str, what: str) -> Path:
    path = os.environ.get(variable)
    if not path:
        raise MissingRequirement(f"the Virtual Wall needs {what}: set {variable} to its path")
    if not Path(path).is_file():
        raise MissingRequirement(f"{variable} names {path!r}, which is no file")
    return Path(path).absolute()


@contextmanager
def _written(wanted: Slice) -> Iterator[Path]:
    """The request, where nobody else reads."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "request.rspec"
        path.write_text(wanted.request, encoding="utf-8")
        yield path


def _short(said: str) -> str:
    """Its end, where the reason stands."""
    words = " ".join(said.split())
    return printable(words[-400:]) or "it says nothing"
