"""The root file system of lab machines: a Debian that debootstrap creates once and gpuyard keeps."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.temporary import temporary_directory

PACKAGES = (
    "ca-certificates",
    "fuse3",
    "iproute2",
    "netbase",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "python3-venv",
    "rsync",
    "sshfs",
    "sudo",
)
"""Packages on every machine: ssh, Python for Ansible, and what roles need without a route out of the lab."""
_OVERRIDE = "GPUYARD_ROOTS"
_COMPLETE = ".gpuyard-root"
_TIMEOUT_MINUTES = 30


def root_directory(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """Return where the root with these packages is kept; by default it has this host's release."""
    all_packages = sorted({*PACKAGES, *packages})
    key = hashlib.sha256("\n".join(all_packages).encode()).hexdigest()[:12]
    return _cache() / f"{release or _release()}-{key}"


def make_root(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """Return the existing root or create it, which takes a few minutes and about 300 MB."""
    target = root_directory(packages, release)
    if (target / _COMPLETE).exists():
        return target
    if shutil.which("debootstrap") is None:
        raise MissingRequirement(
            "lab machines need debootstrap, which is not installed: apt-get install debootstrap"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(target), temporary_directory(target.parent, "root") as fresh:
        if (target / _COMPLETE).exists():  # another process created it meanwhile
            return target
        root = fresh / "root"
        include = ",".join(sorted({*PACKAGES, *packages}))
        # its mounts end with its process, so the cleanup after a kill never reaches the host's files
        argv = ["unshare", "--mount", "--propagation=private", "debootstrap", "--variant=minbase"]
        argv += [f"--include={include}", release or _release(), str(root), _mirror()]
        try:
            process = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_MINUTES * 60,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
        except subprocess.TimeoutExpired:
            raise GpuyardError(
                f"debootstrap timed out after {_TIMEOUT_MINUTES} min; check that the package mirror is reachable"
            ) from None
        if process.returncode != 0:
            lines = (process.stderr or process.stdout).strip().splitlines()
            detail = lines[-1] if lines else f"exit status {process.returncode} without output"
            raise GpuyardError(f"debootstrap failed: {detail}")
        for key in (root / "etc/ssh").glob("ssh_host_*"):
            key.unlink()  # each machine generates its own
        (root / _COMPLETE).touch()
        root.rename(target)
    return target


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
