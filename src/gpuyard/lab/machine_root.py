"""The file system that a lab's machines start from: a Debian of its own, made once by debootstrap and kept."""

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
from gpuyard.temporary import held_directory

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
"""What every machine has before it is deployed to: ssh, Python for Ansible, and what roles need where no route leads
out of the lab."""
_OVERRIDE = "GPUYARD_ROOTS"
_MADE = ".gpuyard-root"
_MINUTES = 30


def root_directory(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """Where the one with these packages is kept, made or not; of this host's release where none is named."""
    wanted = sorted({*PACKAGES, *packages})
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    return _cache() / f"{release or _release()}-{key}"


def make_root(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """The kept one, else made now: a few minutes, and some 300 MB."""
    target = root_directory(packages, release)
    if (target / _MADE).exists():
        return target
    if shutil.which("debootstrap") is None:
        raise MissingRequirement(
            "machines of a lab get a Debian of their own, and debootstrap is not installed: "
            "apt-get install debootstrap"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(target), held_directory(target.parent, "root") as fresh:
        if (target / _MADE).exists():  # somebody else has made it meanwhile
            return target
        making = fresh / "root"
        include = ",".join(sorted({*PACKAGES, *packages}))
        # what it mounts goes with its process, so that nothing of this host is below what is swept after a kill
        argv = ["unshare", "--mount", "--propagation=private", "debootstrap", "--variant=minbase"]
        argv += [f"--include={include}", release or _release(), str(making), _mirror()]
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                check=False,
                timeout=_MINUTES * 60,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
        except subprocess.TimeoutExpired:
            raise GpuyardError(
                f"debootstrap did not end in {_MINUTES} minutes; is the package mirror there?"
            ) from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise GpuyardError(f"debootstrap failed: {said[-1] if said else 'it said nothing'}")
        for key in (making / "etc/ssh").glob("ssh_host_*"):
            key.unlink()  # each machine makes its own
        (making / _MADE).touch()
        making.rename(target)
    return target


@contextlib.contextmanager
def _one_at_a_time(target: Path) -> Iterator[None]:
    """Who comes second waits, and then has it; the kernel frees the lock with its process."""
    lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _cache() -> Path:
    named = os.environ.get(_OVERRIDE)
    return Path(named) if named else files.home() / "roots"


def _release() -> str:
    """This host's own: its mirror has it for certain."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = dict(line.split("=", 1) for line in lines if "=" in line)
    release = named.get("VERSION_CODENAME", "").strip('"')
    if not release:
        raise MissingRequirement("a lab's machines are Debian or Ubuntu, made on a host with apt")
    return release


def _mirror() -> str:
    """The one that this host's own packages come from."""
    argv = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    try:
        listed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"apt-get can't say where packages come from: {error}") from error
    for line in listed.splitlines():
        mirror, _, release = line.rpartition(" ")
        if release == _release():
            return mirror
    raise MissingRequirement(f"apt-get knows no mirror of {_release()}; run: apt-get update")
