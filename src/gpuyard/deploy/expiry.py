"""The time at which a rented deployment is removed automatically, and the background process that does it.

If the file has a `ttl` and a machine that powers itself off stops costing money (AWS, Google Cloud), each machine has a
timer as well, which works while this one is off. The default expiry sets no such timer, because it first waits for jobs
and copies shared files.

Lambda Cloud has no such timer and bills until an instance is terminated, so an instance that only shuts itself down still
costs money. An instance that terminates itself would need the account's key, which does not belong on machines that others
log in to. So a process of the user runs on this machine, detached from any terminal (`gpuyard.deploy.reaper`). A file lock
shows whether it is running, and every `gpuyard deploy` command restarts it if it is not.
"""

import contextlib
import fcntl
import json
import math
import os
import time
from dataclasses import asdict, dataclass

from gpuyard import files
from gpuyard.deploy.state import StateDirectory, list_deployments
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start_detached
from gpuyard.specs.deployment import Deployment

_FILE, _LOG = "expiry.json", "expiry.log"
_GRACE_SECONDS = 600.0  # `down` on this machine removes everything, so it goes first


@dataclass(frozen=True)
class Expiry:
    """When a deployment is removed."""

    unix_seconds: float
    target: str
    asked: bool = True
    """The user wrote `ttl`. Otherwise jobs may end, and shared files are copied to this machine, before the removal."""
    shared: str | None = None
    people: tuple[str, ...] = ()


def calculate_lifetime(ttl_seconds: float | None) -> int | None:
    """Return the seconds after which a new machine ends itself, shortly after this machine would have removed it."""
    return None if ttl_seconds is None else math.ceil(ttl_seconds + _GRACE_SECONDS)


def find_poweroff_time(state: StateDirectory) -> int | None:
    """Return the time at which the machines power themselves off, or None if they never do.

    Only a `ttl` in the file has such a time: it stops jobs, and some clouds then delete the disks.
    """
    expiry = read_expiry(state)
    if expiry is None or not expiry.asked:
        return None
    return math.ceil(expiry.unix_seconds + _GRACE_SECONDS)


def read_expiry(state: StateDirectory) -> Expiry | None:
    """Return None if no expiry was set, or the deployment has been removed."""
    path = state.path / _FILE
    try:
        return Expiry(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise GpuyardError(f"cannot read {path}: {error}") from None


def read_delay(state: StateDirectory, expiry: Expiry) -> str | None:
    """Return why an expired deployment still exists, as its process last logged it; None if it has not expired."""
    if time.time() < expiry.unix_seconds:
        return None
    try:
        lines = (state.path / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "its removal has begun"


def set_expiry(state: StateDirectory, deployment: Deployment) -> None:
    """Let the deployment expire this long after now; without a `ttl` it never expires."""
    path, target = state.path / _FILE, deployment.target
    ttl_seconds = getattr(target, "ttl", None)
    if ttl_seconds is None:
        path.unlink(missing_ok=True)
        return
    expiry = Expiry(
        time.time() + ttl_seconds,
        target.kind,
        asked="ttl" in target.model_fields_set,
        shared=deployment.shared if "shared-storage" in deployment.head else None,
        people=tuple(user.name for user in deployment.users),
    )
    document = asdict(expiry)
    files.write_text(path, json.dumps(document), mode=0o600)
    _start_reaper(state)


def start_all_reapers() -> None:
    """Restart the processes that a reboot has stopped."""
    for name in list_deployments():
        state = StateDirectory(name)
        if (state.path / _FILE).exists():
            with contextlib.suppress(FileNotFoundError):  # the deployment is being removed
                _start_reaper(state)


def _start_reaper(state: StateDirectory) -> None:
    """Start the process that removes this deployment, unless it is already running."""
    flags = os.O_CREAT | os.O_NOFOLLOW
    lock = os.open(state.path / "expiry.lock", os.O_RDWR | flags, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        log = os.open(state.path / _LOG, os.O_WRONLY | os.O_APPEND | flags, 0o600)
        try:
            # The process inherits the lock, so there is no moment in which it is free.
            argv = (*module_argv("gpuyard.deploy.reaper"), state.name, str(lock))
            start_detached(Command("here", argv, import_path()), output=log, kept=(lock,))
        finally:
            os.close(log)
    finally:
        os.close(lock)
