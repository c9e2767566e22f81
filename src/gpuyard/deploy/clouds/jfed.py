"""Slices of testbeds with a GENI API, through jFed's command line (`experimenter-cli.jar`): create, inspect, delete.

Only the client reads the certificate that GPUYARD_JFED_PEM names. It must be decrypted, because the client accepts a
passphrase only on its command line. Requests are passed in files; command lines contain slice and project names.
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
from gpuyard.printable import make_printable

JAR_VARIABLE = "GPUYARD_JFED_CLI"
PEM_VARIABLE = "GPUYARD_JFED_PEM"
WAIT_SCALE_VARIABLE = "GPUYARD_JFED_WAIT_SCALE"
_CREATE_SECONDS = 5400  # the testbed reinstalls every server
_QUERY_SECONDS = 300
_POLL_SECONDS = 15.0
_DELETE_POLLS = 40
_START_POLLS = 240
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,18}")  # GENI's limit for slice names
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_STATUS = re.compile(r"has status ([A-Z_]+)")
_NOT_FOUND = ("does not exist", "does not yet exist")
_UNALLOCATED = "UNALLOCATED"
_FAILED = "FAIL"


@dataclass(frozen=True)
class Slice:
    """A requested or existing slice."""

    name: str
    project: str
    request: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserMistake(
                f"{self.name!r} is not a valid slice name: use at most 19 letters, digits, and '-'"
            )
        if not _PROJECT.fullmatch(self.project):
            raise UserMistake(f"{self.project!r} is not a valid project name")


@dataclass(frozen=True)
class Jfed:
    """A client that acts for one user."""

    java: str
    jar: Path
    certificate: Path
    wait_scale: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def from_environment(cls) -> "Jfed":
        """Find the client and the certificate. Raises if either is missing."""
        java = shutil.which("java")
        if java is None:
            raise MissingRequirement("java not found; jFed's command line needs it")
        return cls(
            java,
            _find_file(JAR_VARIABLE, "jFed's experimenter-cli.jar"),
            _find_file(PEM_VARIABLE, "your account's decrypted PEM file"),
            float(os.environ.get(WAIT_SCALE_VARIABLE, "1")),
        )

    def status(self, slice_: Slice) -> str | None:
        """Return READY, CHANGING, and so on; None if the slice has no machines, whether or not its name exists."""
        statuses = self._statuses(slice_)
        return next((s for s in statuses if s != "READY"), "READY") if statuses else None

    def create(self, slice_: Slice, lifetime_hours: int) -> str:
        """Create the slice and return its manifest when all machines are ready."""
        options = ["--ssh-keys", "usercert,rspec", "--expiration-hours", str(lifetime_hours)]
        if self._statuses(slice_) is None:
            options.append("--create-slice")
        return self._fetch_manifest("create", slice_, *options, timeout_seconds=_CREATE_SECONDS)

    def manifest(self, slice_: Slice) -> str:
        """Return the manifest of an existing slice."""
        return self._fetch_manifest("manifest", slice_)

    def wait_until_ready(self, slice_: Slice) -> None:
        for _ in range(_START_POLLS):
            status = self.status(slice_)
            if status == "READY":
                return
            if status is None or status == _FAILED:
                raise GpuyardError(
                    f"slice {slice_.name} has failed; remove it with `gpuyard deploy down`"
                )
            self._pause()
        raise GpuyardError(
            f"slice {slice_.name} is still not ready; run `gpuyard deploy up` again later"
        )

    def delete(self, slice_: Slice) -> None:
        """Give the slice's machines back and wait until they are gone."""
        if self.status(slice_) is None:
            return
        with _request_file(slice_) as request:
            self._run("delete", slice_, "--rspec", str(request))
        for _ in range(_DELETE_POLLS):
            if self.status(slice_) is None:
                return
            self._pause()
        raise GpuyardError(f"slice {slice_.name} was deleted but its machines still exist")

    def _statuses(self, slice_: Slice) -> list[str] | None:
        """Return the status on each testbed that has machines; None if no slice has this name."""
        with _request_file(slice_) as request:
            output = self._run("status", slice_, "--rspec", str(request), may_fail=True)
        if statuses := _STATUS.findall(output):
            return [status for status in statuses if status != _UNALLOCATED]
        if any(phrase in output for phrase in _NOT_FOUND):
            return None
        raise GpuyardError(f"jFed reported no status for slice {slice_.name}: {_shorten(output)}")

    def _fetch_manifest(
        self, command: str, slice_: Slice, *options: str, timeout_seconds: int = _QUERY_SECONDS
    ) -> str:
        with _request_file(slice_) as request:
            manifest = request.with_name("manifest.rspec")
            arguments = ("--rspec", str(request), "--manifest", str(manifest), *options)
            output = self._run(command, slice_, *arguments, timeout_seconds=timeout_seconds)
            if not manifest.exists():
                raise GpuyardError(f"jFed {command} wrote no manifest: {_shorten(output)}")
            return files.read_text(manifest)

    def _pause(self) -> None:
        self.sleep(_POLL_SECONDS * self.wait_scale)

    def _run(
        self,
        command: str,
        slice_: Slice,
        *options: str,
        may_fail: bool = False,
        timeout_seconds: int = _QUERY_SECONDS,
    ) -> str:
        """Return the output of a command. The output of `status` counts whatever its exit status is."""
        common = ("-s", slice_.name, "-S", slice_.project, "-p", str(self.certificate))
        try:
            done = subprocess.run(
                (self.java, "-jar", str(self.jar), command, *common, *options),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=timeout_seconds,
            )
        except subprocess.TimeoutExpired:
            raise GpuyardError(
                f"jFed {command} of slice {slice_.name} timed out after {timeout_seconds} s"
            ) from None
        if done.returncode != 0 and not may_fail:
            raise GpuyardError(f"jFed {command} failed: {_shorten(done.stdout)}")
        return done.stdout


def _find_file(variable: str, description: str) -> Path:
    path = os.environ.get(variable)
    if not path:
        raise MissingRequirement(
            f"the Virtual Wall needs {description}: set {variable} to its path"
        )
    if not Path(path).is_file():
        raise MissingRequirement(f"{variable} is set to {path!r}, which is not a file")
    return Path(path).absolute()


@contextmanager
def _request_file(slice_: Slice) -> Iterator[Path]:
    """Write the request to a directory that only this user can read."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "request.rspec"
        path.write_text(slice_.request, encoding="utf-8")
        yield path


def _shorten(output: str) -> str:
    """Return the end of the output, which contains the reason for a failure."""
    text = " ".join(output.split())
    return make_printable(text[-400:]) or "no output"
