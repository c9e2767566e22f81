"""Machines of a lab: a node that also has a root file system, processes and an sshd of its own.

A machine is a directory (its changes over the kept root) and, while it is up, one process that holds the directory's
lock. The directory outlives the process as a disk outlives its machine; `remove` takes both.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
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
_START_SECONDS = 60.0
_LEAVE_SECONDS = 10.0


@dataclass(frozen=True)
class LabMachine:
    """One of them; it need not be up."""

    name: str
    directory: Path

    @property
    def host_key(self) -> str | None:
        """The public key by which a client knows it, once it was up."""
        try:
            path = self.directory / "upper/etc/ssh/ssh_host_ed25519_key.pub"
            return " ".join(path.read_text(encoding="ascii").split()[:2])
        except OSError:
            return None

    @property
    def up(self) -> bool:
        return _holder(self.directory) is not None


def start(
    node: Node,
    base: Path,
    directory: Path,
    *,
    authorized_key: str,
    gpus: int = 0,
    mounts: Sequence[tuple[Path, str]] = (),
) -> LabMachine:
    """Bring it up; one that is up stays as it is. `mounts` are directories of this host, read-only there."""
    machine = LabMachine(node.name, directory)
    with _changing(directory):
        if machine.up:
            return machine
        check_disk(directory)
        keys = directory / "upper/root/.ssh"
        keys.mkdir(parents=True, exist_ok=True)
        keys.chmod(0o700)
        files.write_text(keys / "authorized_keys", authorized_key.strip() + "\n", mode=0o600)
        what = {
            "namespace": node.namespace,
            "name": node.name,
            "cores": list(node.cores),
            "directory": str(directory.absolute()),
            "base": str(base.absolute()),
            "gpus": gpus,
            "mounts": [[str(source.absolute()), target] for source, target in mounts],
        }
        _spawn(machine, what)
    return machine


def check_disk(directory: Path) -> None:
    """Raises where the kernel would refuse the disk: an overlay can't be kept on another one."""
    kinds = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        kinds[Path(before.split()[4])] = after.split()[0]
    at = directory.resolve()
    mounted = next(path for path in (at, *at.parents) if path in kinds)
    if kinds[mounted] == "overlay":
        raise GpuyardError(
            f"{directory} is on an overlay, as the root of a container is, and can't hold a machine's disk; "
            "set GPUYARD_HOME to a directory on another file system"
        )


def stop(machine: LabMachine) -> None:
    """End all its processes; its disk stays."""
    with _changing(machine.directory):
        pid = _holder(machine.directory)
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _LEAVE_SECONDS
        while _holder(machine.directory) is not None:
            if time.monotonic() > deadline:
                raise GpuyardError(f"{machine.name} does not stop; its first process is {pid}")
            time.sleep(0.02)


def remove(machine: LabMachine) -> None:
    """With its disk; one that is gone is no mistake."""
    if machine.directory.is_dir():
        stop(machine)
        shutil.rmtree(machine.directory)


def _spawn(machine: LabMachine, what: dict[str, object]) -> None:
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
    with cast("IO[bytes]", process.stdin) as told:
        told.write(json.dumps(what).encode())
    with cast("IO[bytes]", process.stdout) as output:
        there, _, _ = select.select([output], [], [], _START_SECONDS)
        said = output.read().decode(errors="replace").strip() if there else ""
    if said == "ready":
        return
    process.terminate()
    process.wait()
    detail = said.splitlines()[-1] if said else f"it was not ready in {_START_SECONDS:.0f} s"
    raise GpuyardError(f"{machine.name} can't be brought up: {detail}")


def _holder(directory: Path) -> int | None:
    """The process that holds it up."""
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
    """One at a time; the lock is beside the directory, which may be about to go."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = directory.with_name(f".{directory.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
