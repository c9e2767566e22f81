"""The root file system of lab machines: a Debian that debootstrap creates once and gpuyard keeps."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from gpuyard import files
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.temporary import temporary_directory

PACKAGES = (
    "ca-certificates",
    "iproute2",
    "netbase",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "python3-venv",
    "rsync",
    "sudo",
)
"""Packages on every machine: ssh, Python for Ansible, and what roles need without a route out of the lab."""
_OVERRIDE = "GPUYARD_ROOTS"
_COMPLETE = ".gpuyard-root"
_TIMEOUT_MINUTES = 30
_PHASES = ("Retrieving", "Extracting", "Unpacking", "Configuring")
_REPORT_SECONDS = 5.0


def root_directory(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """Return where the root with these packages is kept; by default it has this host's release."""
    all_packages = sorted({*PACKAGES, *packages})
    key = hashlib.sha256("\n".join(all_packages).encode()).hexdigest()[:12]
    return _cache() / f"{release or _release()}-{key}"


def make_root(
    packages: Sequence[str] = (),
    release: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the existing root or create it, which takes a few minutes and about 300 MB."""
    target = root_directory(packages, release)
    if (target / _COMPLETE).exists():
        return target
    if shutil.which("debootstrap") is None:
        raise MissingRequirement(
            "lab machines need debootstrap, which is not installed: apt-get install debootstrap"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    report("Creating the Debian of lab machines, once; this takes a few minutes")
    with _one_at_a_time(target), temporary_directory(target.parent, "root") as fresh:
        if (target / _COMPLETE).exists():  # another process created it meanwhile
            return target
        root = fresh / "root"
        include = ",".join(sorted({*PACKAGES, *packages}))
        command = ["debootstrap", "--variant=minbase", f"--include={include}"]
        _run_debootstrap([*command, release or _release(), str(root), _mirror()], report)
        for key in (root / "etc/ssh").glob("ssh_host_*"):
            key.unlink()  # each machine generates its own
        (root / _COMPLETE).touch()
        root.rename(target)
    return target


def _run_debootstrap(command: Sequence[str], report: Callable[[str], None]) -> None:
    # It ends with this process, and its mounts and all its processes end with it. So nothing runs on after a kill, and the
    # cleanup never reaches the host's files.
    isolated = (
        *("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private"),
        *("--pid", "--fork", "--kill-child", "--mount-proc"),
    )
    process = subprocess.Popen(
        (*isolated, *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(_TIMEOUT_MINUTES * 60, stop)
    timer.daemon = True
    timer.start()
    try:
        with cast("IO[str]", process.stdout) as output:
            last = _follow(output, report)
        status = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if timed_out.is_set():
        raise GpuyardError(
            f"debootstrap timed out after {_TIMEOUT_MINUTES} min; check that the package mirror is reachable"
        )
    if status != 0:
        detail = last or f"exit status {status} without output"
        raise GpuyardError(f"debootstrap failed: {detail}")


def _follow(output: Iterable[str], report: Callable[[str], None]) -> str:
    """Report how many packages each phase has handled, every few seconds; return the last error or line."""
    last = error = ""
    counts: dict[str, int] = {}
    reported_at = time.monotonic()
    for line in filter(None, map(str.strip, output)):
        last = line
        error = line if line.startswith("E:") else error
        word = line.removeprefix("I: ").partition(" ")[0]
        if line.startswith("I: ") and word in _PHASES:
            counts[word] = counts.get(word, 0) + 1
            if time.monotonic() - reported_at >= _REPORT_SECONDS:
                reported_at = time.monotonic()
                report(
                    f"Creating the Debian of lab machines: {word.lower()} package {counts[word]}"
                )
    return error or last


@contextlib.contextmanager
def _one_at_a_time(target: Path) -> Iterator[None]:
    """Let other processes wait until the root is complete; the kernel frees the lock."""
    lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _cache() -> Path:
    override = os.environ.get(_OVERRIDE)
    return Path(override) if override else files.home() / "roots"


def _release() -> str:
    """Return this host's release, which its mirror certainly has."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    release = fields.get("VERSION_CODENAME", "").strip('"')
    if not release:
        raise MissingRequirement("lab machines need a Debian or Ubuntu host with apt")
    return release


def _mirror() -> str:
    """Return the mirror of this host's own packages."""
    argv = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    try:
        output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"apt-get cannot list its package mirrors: {error}") from error
    for line in output.splitlines():
        mirror, _, release = line.rpartition(" ")
        if release == _release():
            return mirror
    raise MissingRequirement(f"apt-get has no mirror for {_release()}; run: apt-get update")
