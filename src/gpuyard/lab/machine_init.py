"""`python -P -m gpuyard.lab.machine_init`: process 1 of a lab's machine; what it is, it reads as JSON from its stdin.

It becomes a process tree with its own mounts, host name, process numbers and the network of the node, on an overlay
over the kept root, starts sshd, and reaps until it is told to end. With it all its processes end.
"""

import ctypes
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

_CLONE_NEWNS, _CLONE_NEWUTS = 0x00020000, 0x04000000
_CLONE_NEWIPC, _CLONE_NEWPID, _CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_MNT_DETACH = 2
_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}  # of major 1
_FUSE = (10, 229)


def main() -> None:
    what = json.load(sys.stdin)
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/var/run/netns/{what['namespace']}", os.O_RDONLY | os.O_CLOEXEC)
    _checked(libc.setns(namespace, _CLONE_NEWNET), "its network")
    spaces = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID
    _checked(libc.unshare(spaces), "namespaces")
    os.sched_setaffinity(0, what["cores"])
    ready, told = os.pipe()
    first = os.fork()
    if first:
        os.close(told)
        _stand_by(first, ready)
    os.close(ready)
    _be_first(libc, what, told)


def _stand_by(first: int, ready: int) -> None:
    """Outside of the process numbers that it made: it passes on that it is to end, and how it ended."""
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: os.kill(first, signal.SIGKILL))
    said = os.read(ready, 10_000)
    os.close(ready)
    sys.stdout.write(said.decode(errors="replace") or "it ended before it was ready")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # whoever started it does not wait for the end of its output
        os.dup2(null, stream)
    os.waitpid(first, 0)
    sys.exit(0)


def _be_first(libc: Any, what: dict[str, Any], told: int) -> None:
    try:
        _mounts(libc, what)
        socket.sethostname(what["name"])
        _start_sshd()
    except (OSError, subprocess.SubprocessError) as error:
        os.write(told, f"failed: {error}".encode())
        os._exit(1)
    os.write(told, b"ready")
    os.close(told)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:  # what daemons leave is this process's child
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _mounts(libc: Any, what: dict[str, Any]) -> None:
    directory = Path(what["directory"])
    root = directory / "root"
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(exist_ok=True)
    _mount(libc, None, "/", None, _MS_REC | _MS_PRIVATE)
    layers = f"lowerdir={what['base']},upperdir={directory / 'upper'},workdir={directory / 'work'}"
    _mount(libc, "overlay", root, "overlay", 0, options=layers)
    _mount(libc, "proc", root / "proc", "proc", _MS_NOSUID | _MS_NODEV)
    _mount(libc, "sysfs", root / "sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_RDONLY)
    # programs that look whether there are cgroups find none of this host's, and go on
    own = (
        ("sys/fs/cgroup", "mode=755"),
        ("run", "mode=755"),
        ("tmp", "mode=1777"),
        ("dev", "mode=755"),
    )
    for at, options in own:
        _mount(libc, "tmpfs", root / at, "tmpfs", _MS_NOSUID, options=options)
    lock = root / "run/lock"  # where /var/lock leads
    lock.mkdir()
    lock.chmod(0o1777)
    for source, target in what["mounts"]:  # after those, which would hide what is below them
        at = root / target.lstrip("/")
        at.mkdir(parents=True, exist_ok=True)
        _mount(libc, source, at, None, _MS_BIND)
        _mount(libc, None, at, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    _devices(libc, root / "dev", what["gpus"])
    previous = root / ".previous"
    previous.mkdir(exist_ok=True)
    os.chdir(root)
    _checked(libc.pivot_root(b".", b".previous"), "its root")
    os.chdir("/")
    _checked(libc.umount2(b"/.previous", _MNT_DETACH), "the host's root")
    Path("/.previous").rmdir()


def _devices(libc: Any, dev: Path, gpus: int) -> None:
    mask = os.umask(0)
    for name, minor in _DEVICES.items():
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    os.mknod(dev / "tty", 0o666 | stat.S_IFCHR, os.makedev(5, 0))
    os.mknod(dev / "fuse", 0o666 | stat.S_IFCHR, os.makedev(*_FUSE))
    for index in range(gpus):  # stand-ins, so that a scheduler has something to give out
        os.mknod(dev / f"nvidia{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.umask(mask)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    _mount(
        libc,
        "devpts",
        dev / "pts",
        "devpts",
        _MS_NOSUID,
        options="newinstance,ptmxmode=0666,mode=620",
    )
    _mount(libc, "tmpfs", dev / "shm", "tmpfs", _MS_NOSUID | _MS_NODEV, options="mode=1777")
    (dev / "ptmx").symlink_to("pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
    (dev / "fd").symlink_to("/proc/self/fd")


def _start_sshd() -> None:
    clean = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    subprocess.run(("/usr/bin/ssh-keygen", "-A"), check=True, capture_output=True, env=clean)
    subprocess.run(("/usr/sbin/sshd",), check=True, capture_output=True, env=clean)


def _mount(
    libc: Any,
    source: str | None,
    target: str | Path,
    kind: str | None,
    flags: int,
    *,
    options: str | None = None,
) -> None:
    words = [None if word is None else str(word).encode() for word in (source, target, kind)]
    given = None if options is None else options.encode()
    _checked(libc.mount(*words, ctypes.c_ulong(flags), given), str(target))


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
