"""Process 1 of a lab machine: `python -P -m gpuyard.lab.machine_init` with its settings as JSON on stdin.

It sets up its own mounts, host name, process IDs, and the node's network on an overlay over the shared root,
starts sshd, and reaps children until it is stopped. All processes of the machine end with it.
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


def main() -> None:
    settings = json.load(sys.stdin)
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/var/run/netns/{settings['namespace']}", os.O_RDONLY | os.O_CLOEXEC)
    _check(libc.setns(namespace, _CLONE_NEWNET), "network namespace")
    namespaces = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID
    _check(libc.unshare(namespaces), "namespaces")
    os.sched_setaffinity(0, settings["cores"])
    ready_reader, ready_writer = os.pipe()
    init_pid = os.fork()
    if init_pid:
        os.close(ready_writer)
        _watch_init(init_pid, ready_reader)
    os.close(ready_reader)
    _run_init(libc, settings, ready_writer)


def _watch_init(init_pid: int, ready_reader: int) -> None:
    """Run outside the PID namespace: pass on signals and report whether init became ready."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: os.kill(init_pid, signal.SIGKILL))
    message = os.read(ready_reader, 10_000)
    os.close(ready_reader)
    sys.stdout.write(message.decode(errors="replace") or "init ended before it was ready")
    sys.stdout.flush()
    _detach_streams()  # so that the starting process does not wait for the end of the output
    os.waitpid(init_pid, 0)
    sys.exit(0)


def _detach_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _run_init(libc: Any, settings: dict[str, Any], ready_writer: int) -> None:
    try:
        _mount_all(libc, settings)
        socket.sethostname(settings["name"])
        _start_sshd()
    except (OSError, subprocess.SubprocessError) as error:
        os.write(ready_writer, f"failed: {error}".encode())
        os._exit(1)
    os.write(ready_writer, b"ready")
    os.close(ready_writer)
    _detach_streams()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:  # orphans of daemons become children of this process
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _mount_all(libc: Any, settings: dict[str, Any]) -> None:
    directory = Path(settings["directory"])
    root = directory / "root"
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(exist_ok=True)
    _mount(libc, None, "/", None, _MS_REC | _MS_PRIVATE)
    layers = (
        f"lowerdir={settings['base']},upperdir={directory / 'upper'},workdir={directory / 'work'}"
    )
    _mount(libc, "overlay", root, "overlay", 0, options=layers)
    _mount(libc, "proc", root / "proc", "proc", _MS_NOSUID | _MS_NODEV)
    _mount(libc, "sysfs", root / "sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_RDONLY)
    # an empty cgroup directory hides the host's cgroups from programs that look for them
    temporary_file_systems = (
        ("sys/fs/cgroup", "mode=755"),
        ("run", "mode=755"),
        ("tmp", "mode=1777"),
        ("dev", "mode=755"),
    )
    for path, options in temporary_file_systems:
        _mount(libc, "tmpfs", root / path, "tmpfs", _MS_NOSUID, options=options)
    lock = root / "run/lock"  # the target of /var/lock
    lock.mkdir()
    lock.chmod(0o1777)
    for source, target in settings["mounts"]:  # last, because the mounts above would hide them
        mount_point = _bind(libc, source, root / target.lstrip("/"))
        _mount(libc, None, mount_point, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    if settings["shared"]:
        source, target = settings["shared"]
        _bind(libc, source, root / target.lstrip("/"))
    _create_devices(libc, root / "dev", settings["gpus"])
    previous = root / ".previous"
    previous.mkdir(exist_ok=True)
    os.chdir(root)
    _check(libc.pivot_root(b".", b".previous"), "pivot_root")
    os.chdir("/")
    _check(libc.umount2(b"/.previous", _MNT_DETACH), "unmounting the host's root")
    Path("/.previous").rmdir()


def _bind(libc: Any, source: str, mount_point: Path) -> Path:
    mount_point.mkdir(parents=True, exist_ok=True)
    _mount(libc, source, mount_point, None, _MS_BIND)
    return mount_point


def _create_devices(libc: Any, dev: Path, gpus: int) -> None:
    mask = os.umask(0)
    for name, minor in _DEVICES.items():
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    os.mknod(dev / "tty", 0o666 | stat.S_IFCHR, os.makedev(5, 0))
    for index in range(gpus):  # stand-ins that a scheduler can allocate
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
    arguments = [None if text is None else str(text).encode() for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(libc.mount(*arguments, ctypes.c_ulong(flags), data), str(target))


def _check(result: int, action: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
