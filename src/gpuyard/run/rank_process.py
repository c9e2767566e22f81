"""A rank process: one JSON job on stdin, events on stdout, one a line.

When its stdin ends, who started it is gone, and so is this process.
"""

import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from pydantic import BaseModel

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.run.launch import JOBS_DIRECTORY
from gpuyard.run.protocol import LOST_PEER_STATUS, Refusal

Emit = Callable[[BaseModel], None]
AnyJob = TypeVar("AnyJob", bound=BaseModel)
_LOST_PEER = ("closed by peer", "connection reset", "broken pipe", "timed out", "nccl error")


def serve(
    job_type: type[AnyJob],
    run: Callable[[AnyJob, Emit], None],
    at_end: Callable[[], None] | None = None,
) -> None:
    """Run one job and exit; nothing of a user's code can write into the stream of events.

    From `at_end` on, an end of stdin is not taken for a death of the parent: mpiexec closes it early.
    """
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    shared = os.environ.pop(JOBS_DIRECTORY, None)
    if shared is not None:
        _own_stderr(Path(shared))
    os.dup2(2, 1)
    job = job_type.model_validate_json(_read_line() if shared is None else _own_job(Path(shared)))
    directory = str(getattr(job, "directory", ""))
    finished = threading.Event()
    threading.Thread(target=_leave_with_parent, args=(directory, finished), daemon=True).start()
    status = _run_guarded(job, run, events)
    if status == 0 and at_end is not None:
        finished.set()
        at_end()
    events.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: tearing torch down takes time, and peers wait for the sockets


def _run_guarded(job: AnyJob, run: Callable[[AnyJob, Emit], None], events: TextIO) -> int:
    def emit(event: BaseModel) -> None:
        events.write(event.model_dump_json() + "\n")
        events.flush()

    try:
        run(job, emit)
    except GpuyardError as error:
        kinds = (MissingRequirement, UserMistake)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "GpuyardError")
        emit(Refusal.model_validate({"kind": kind, "sentence": str(error)}))
        return 1
    except RuntimeError as error:
        traceback.print_exc()
        lost = any(sign in str(error).lower() for sign in _LOST_PEER)
        return LOST_PEER_STATUS if lost and getattr(job, "processes", 1) > 1 else 1
    except BaseException:  # noqa: BLE001  the last lines of stderr are the report
        traceback.print_exc()
        return 1
    return 0


def _own_job(shared: Path) -> bytes:
    """Where torchrun has started several ranks with one stdin, each has a file."""
    return (shared / f"rank{os.environ['RANK']}.job").read_bytes()


def _own_stderr(shared: Path) -> None:
    descriptor = os.open(
        shared / f"rank{os.environ['RANK']}.stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        # byte by byte from the descriptor: a buffered stdin would hold a lock at exit
        character = os.read(0, 1)
        if not character:
            sys.exit("the job ended before its end of line")
        line += character
    return line


def _leave_with_parent(directory: str, finished: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    if finished.is_set():
        return
    shutil.rmtree(directory, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # with the children that a user's code has started
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
