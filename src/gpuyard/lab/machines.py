"""Lab machines: nodes with their own root file system, processes, and sshd.

A machine is a directory (its changes on top of the shared root) and, while it is up, one process that holds
the directory's lock. The directory outlives the process, like a disk; `remove` removes both.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.lab.lab import Node

_LOCK = "held.lock"
_CHANGES = Path("upper")
"""The directory that holds a machine's changes, seen by the machine as its `/`."""
_HOST_KEY = _CHANGES / "etc/ssh/ssh_host_ed25519_key.pub"
_ROOTS_SSH = _CHANGES / "root/.ssh"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_SSH_PORT = 22
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class LabMachine:
    """A machine of a lab, running or not."""

    name: str
    directory: Path

    @property
    def host_key(self) -> str | None:
        """The machine's public ssh key, or None if it never ran."""
        try:
            path = self.directory / _HOST_KEY
            return " ".join(path.read_text(encoding="ascii").split()[:2])
        except OSError:
            return None

    @property
    def up(self) -> bool:
        return self.first_process is not None

    @property
    def first_process(self) -> int | None:
        """The process of this host whose children are the machine's processes; None if it is down."""
        return _holder(self.directory)


def start(
    node: Node,
    base: Path,
    directory: Path,
    *,
    authorized_key: str,
    gpus: int = 0,
    mounts: Sequence[tuple[Path, str]] = (),
    shared: tuple[Path, str] | None = None,
) -> LabMachine:
    """Start the machine, or only its sshd if that has died.

    It sees the host directories in `mounts` read-only. It can write to `shared`, as other machines with the same one.
    """
    machine = LabMachine(node.name, directory)
    with _changing(directory):
        if machine.up:
            if not answers_ssh(node):
                _start_sshd(machine)
            return machine
        check_disk(directory)
        keys = directory / _ROOTS_SSH
        keys.mkdir(parents=True, exist_ok=True)
        keys.chmod(0o700)
        files.write_text(keys / "authorized_keys", authorized_key.strip() + "\n", mode=0o600)
        settings = {
            "namespace": node.namespace,
            "name": node.name,
            "cores": list(node.cores),
            "directory": str(directory.absolute()),
            "base": str(base.absolute()),
            "gpus": gpus,
            "mounts": [[str(source.absolute()), target] for source, target in mounts],
            "shared": shared and [str(shared[0].absolute()), shared[1]],
        }
        _spawn(machine, settings)
    return machine


def answers_ssh(node: Node) -> bool:
    """Return whether an sshd answers on the node; asked from a child process, which enters the node's network."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(OSError):
            node.enter()
            with socket.create_connection((node.address, _SSH_PORT), _ANSWER_SECONDS) as connection:
                status = 0 if connection.recv(4) == b"SSH-" else 1
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _start_sshd(machine: LabMachine) -> None:
    """Start sshd in a machine that runs without one; everything else on it stays as it is."""
    holder = _holder(machine.directory)
    children = Path(f"/proc/{holder}/task/{holder}/children").read_text(encoding="ascii").split()
    if not children:
        raise GpuyardError(f"{machine.name} has no init process; run `up` again")
    enter = ("nsenter", f"--target={children[0]}", "--mount", "--uts", "--ipc", "--net", "--pid")
    script = "mkdir -p /run/sshd && exec /usr/sbin/sshd"
    done = subprocess.run(
        (*enter, "--root", "--wd", "--", "/bin/sh", "-c", script),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise GpuyardError(
            f"{machine.name} does not answer ssh, and its sshd does not start: {lines[-1]}; restart it with: "
            f"gpuyard deploy up FILE --restart {machine.name}"
        )


def check_disk(directory: Path) -> None:
    """Raise GpuyardError if the directory is on an overlay, which cannot hold another overlay."""
    file_systems = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        file_systems[Path(before.split()[4])] = after.split()[0]
    path = directory.resolve()
    mount_point = next(parent for parent in (path, *path.parents) if parent in file_systems)
    if file_systems[mount_point] == "overlay":
        raise GpuyardError(
            f"{directory} is on an overlay, as in a container, and cannot hold a machine's disk; "
            "set GPUYARD_HOME to a directory on another file system"
        )


def stop(machine: LabMachine) -> None:
    """Stop all processes of the machine; its disk stays."""
    with _changing(machine.directory):
        pid = _holder(machine.directory)
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while _holder(machine.directory) is not None:
            if time.monotonic() > deadline:
                raise GpuyardError(f"{machine.name} does not stop; its init process is {pid}")
            time.sleep(0.02)


def remove(machine: LabMachine) -> None:
    """Stop the machine and remove its disk; a missing machine is no error."""
    if machine.directory.is_dir():
        stop(machine)
        shutil.rmtree(machine.directory)


def _spawn(machine: LabMachine, settings: dict[str, object]) -> None:
    descriptor = os.open(machine.directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        process = subprocess.Popen(
            module_argv("gpuyard.lab.machine_init"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **import_path()},
            pass_fds=(descriptor,),
            cwd="/",
        )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(process.pid).encode(), 0)
    finally:
        os.close(descriptor)
    with cast("IO[bytes]", process.stdin) as stdin:
        stdin.write(json.dumps(settings).encode())
    with cast("IO[bytes]", process.stdout) as stdout:
        readable, _, _ = select.select([stdout], [], [], _START_SECONDS)
        output = stdout.read().decode(errors="replace").strip() if readable else ""
    if output == "ready":
        return
    process.terminate()
    process.wait()
    detail = output.splitlines()[-1] if output else f"not ready after {_START_SECONDS:.0f} s"
    raise GpuyardError(f"cannot start {machine.name}: {detail}")


def _holder(directory: Path) -> int | None:
    """Return the ID of the process that runs the machine, or None if it is down."""
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(descriptor, 20, 0) or 0) or None
    finally:
        os.close(descriptor)
    return None


@contextlib.contextmanager
def _changing(directory: Path) -> Iterator[None]:
    """Let only this process change the machine; the lock is outside its directory, which may be removed."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = directory.with_name(f".{directory.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
