"""An end to what rented machines cost: a process of the user removes them when their time is over.

Lambda Cloud has no such timer and bills until an instance is terminated, so one that only shuts itself down is paid
for all the same. One that terminates itself would need the account's key, which has no business on machines that others log in to. So the process
runs here, apart from any terminal; the kernel tells by a lock whether it does, and every `gpuyard deploy` starts
it again where it does not.
"""

import contextlib
import fcntl
import json
import os
import sys
import time
from dataclasses import asdict, dataclass

from gpuyard import files
from gpuyard.deploy.state import StateDirectory, deployments
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start_apart

_LOOK_SECONDS = 30.0  # so often it looks whether the end was moved
_AGAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Expiry:
    """When a deployment ends; `when` in seconds since 1970."""

    when: float
    target: str


def end_of(state: StateDirectory) -> Expiry | None:
    """None where none was set, or it has been removed."""
    try:
        return Expiry(**json.loads((state.path / "end.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise GpuyardError(f"{state.path / 'end.json'} can't be read: {error}") from None


def set_end(state: StateDirectory, target: str, seconds: float | None) -> None:
    """From now on; None takes it away."""
    path = state.path / "end.json"
    if seconds is None:
        path.unlink(missing_ok=True)
        return
    document = asdict(Expiry(time.time() + seconds, target))
    files.write_text(path, json.dumps(document), mode=0o600)
    watch(state)


def watch_all() -> None:
    """Start what a reboot has ended."""
    for name in deployments():
        state = StateDirectory(name)
        if (state.path / "end.json").exists():
            with contextlib.suppress(FileNotFoundError):  # it is being removed
                watch(state)


def watch(state: StateDirectory) -> None:
    """Start its process unless there is one."""
    lock = _open_lock(state)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        output = os.open(
            state.path / "end.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW,
            0o600,
        )
        try:
            # it gets the lock from here, so that there is no moment in which nobody has it
            argv = (*module_argv("gpuyard.deploy.clouds.ttl"), state.name, str(lock))
            start_apart(Command("here", argv, import_path()), output=output, kept=(lock,))
        finally:
            os.close(output)
    finally:
        os.close(lock)


def main(arguments: list[str]) -> None:
    """Wait for the end, remove everything, and try until nothing is left."""
    from gpuyard.deploy.deployment import remove
    from gpuyard.deploy.targets import TARGETS

    os.chdir("/")
    state = StateDirectory(arguments[0])
    while (end := end_of(state)) is not None:
        early = end.when - time.time()
        if early > 0:
            time.sleep(min(early, _LOOK_SECONDS))
            continue
        try:
            with state.changing():
                if end_of(state) == end:  # not moved by an `up` that we waited for
                    remove(TARGETS[end.target], state, _log)
        except GpuyardError as error:
            _log(str(error))
        time.sleep(min(_AGAIN_SECONDS, max(1.0, time.time() - end.when)))


def _log(words: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}\n")
    sys.stderr.flush()


def _open_lock(state: StateDirectory) -> int:
    return os.open(state.path / "end.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


if __name__ == "__main__":
    main(sys.argv[1:])
