"""One start of a job: its supervisor is set off, and later asked for, by its files and by its lock alone."""

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.interpreter import import_path, module_argv
from gpuyard.jobs.engines.local.paths import StartPaths
from gpuyard.jobs.log_files import open_log
from gpuyard.run.process import Command, start_apart
from gpuyard.share.store.locks import is_held
from gpuyard.share.watch import processes

_SUPERVISOR = "gpuyard.jobs.engines.local.supervisor"
_LONGEST_FAULT = 300  # characters
How = Literal["exit", "time", "evicted", "refused", "stopped"]
"""By its own; at its time limit; its GPUs were reserved; never started; stopped while it waited for GPUs."""


@dataclass(frozen=True)
class Order:
    """What a supervisor has to do."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    gpus: int
    seconds: float | None
    project: str
    title: str
    """Of the command, as `gpuyard who` shows it."""


@dataclass(frozen=True)
class StartProgress:
    """How far a supervisor is; `lease` is empty while it waits for its turn."""

    pid: int
    process_start: int
    waits_for: str = ""
    place: str = ""
    """In the queue of leases, by the name of the lease that it will be."""
    lease: str = ""
    gpus: tuple[int, ...] = ()
    started: float | None = None


@dataclass(frozen=True)
class StartEnd:
    """How a start ended; `exit_status` is None where its command never ran."""

    how: How
    ended: float
    exit_status: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class StartView:
    """What can be known of a start now."""

    end: StartEnd | None
    progress: StartProgress | None
    alive: bool
    """Its supervisor or something that it started lives."""
    began: bool
    """A supervisor has come as far as its log, before which nothing of the job runs, or could not."""
    fault: str = ""
    """What it said last before it had a log, where it could not do its work."""


@contextlib.contextmanager
def prepared(paths: StartPaths, order: Order) -> Iterator[Callable[[], None]]:
    """The files of a new start and its lock, which is held from here on; call what this gives to set it off.

    So there is no moment in which the store says that it was started and its lock says that it is gone.
    """
    paths.directory.parent.mkdir(mode=0o700, exist_ok=True)
    paths.directory.mkdir(mode=0o700)
    write_text(paths.order, json.dumps(asdict(order)), mode=0o600)
    lock = os.open(paths.lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lambda: _set_off(paths, lock)
    finally:
        os.close(lock)


def _set_off(paths: StartPaths, lock: int) -> None:
    output = open_log(paths.supervisor_log)
    try:
        argv = (*module_argv(_SUPERVISOR), str(paths.directory), str(lock))
        environment = {**import_path(), processes.VARIABLE: ""}  # it is of no lease yet
        start_apart(Command("here", argv, environment), output=output, kept=(lock,))
    finally:
        os.close(output)


def look(paths: StartPaths) -> StartView:
    """As it is now. The lock is asked first: what ends meanwhile has written its end by then."""
    alive = is_held(paths.lock)
    progress = _read(paths.progress, _progress)
    if not alive and progress is not None and progress.lease:
        # a program that closes what it inherits is found by its environment
        alive = bool(processes.processes_of(processes.Marks(progress.lease, os.getuid())))
    end = _read(paths.end, _end)
    fault = "" if alive or end is not None else _last_line(paths.supervisor_log)
    began = end is not None or progress is not None or paths.log.exists() or bool(fault)
    return StartView(end, progress, alive, began, fault)


def gpu_seconds(paths: StartPaths, now: float) -> float:
    """That it has had so far; of one that was lost, up to the last that it printed."""
    progress, end = _read(paths.progress, _progress), _read(paths.end, _end)
    if progress is None or progress.started is None:
        return 0.0
    until: float = now
    if end is not None:
        until = end.ended
    elif not is_held(paths.lock):
        with contextlib.suppress(OSError):
            until = paths.log.stat().st_mtime
    return float(len(progress.gpus) * max(0.0, until - progress.started))


def ask_to_end(paths: StartPaths, number: signal.Signals) -> None:
    """Send a signal to the supervisor, which passes it on; never to a process that only has its pid now."""
    progress = _read(paths.progress, _progress)
    if progress is None:
        return
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(progress.pid)
        try:
            if processes.start_time(progress.pid) == progress.process_start:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def end_all(paths: StartPaths, grace_seconds: float) -> bool:
    """Stop the supervisor and everything of its lease; True: nothing is left."""
    progress = _read(paths.progress, _progress)
    if progress is None:
        return not is_held(paths.lock)
    supervisor = (progress.pid, progress.process_start)
    with processes.pinned(paths.lock) as lock:
        marks = processes.Marks(progress.lease or "none", os.getuid(), lock, supervisor)
        return not processes.stop([marks], grace_seconds)


def read_order(paths: StartPaths) -> Order:
    """For the supervisor."""
    document = json.loads(paths.order.read_text(encoding="utf-8"))
    return Order(**{**document, "argv": tuple(document["argv"])})


def write_progress(paths: StartPaths, progress: StartProgress) -> None:
    write_text(paths.progress, json.dumps(asdict(progress)), mode=0o600)


def write_end(paths: StartPaths, end: StartEnd) -> None:
    write_text(paths.end, json.dumps(asdict(end)), mode=0o600)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LONGEST_FAULT]


def _read(path: Path, made: Any) -> Any:
    """What was written whole; None where nothing was."""
    try:
        return made(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise GpuyardError(f"{path} can't be read: {error}") from error


def _progress(document: dict[str, Any]) -> StartProgress:
    return StartProgress(**{**document, "gpus": tuple(document["gpus"])})


def _end(document: dict[str, Any]) -> StartEnd:
    return StartEnd(**document)
