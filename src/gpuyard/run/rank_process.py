"""A rank process: reads one JSON job from stdin or from its agent, and writes events to stdout, one per line.

When its stdin closes, its parent has gone, and the process exits.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from gpuyard.cpu import usable_cores
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.run.protocol import JOBS_DIRECTORY, LOST_PEER_STATUS, Done, RankJob, RankRefusal

Emit = Callable[[BaseModel], None]
AnyJob = TypeVar("AnyJob", bound=RankJob)
_LOST_PEER = ("closed by peer", "connection reset", "broken pipe", "timed out", "nccl error")


def serve(
    job_type: type[AnyJob],
    run: Callable[[AnyJob, Emit], None],
    at_end: Callable[[], None] | None = None,
) -> None:
    """Run one job on its cores and exit. User code cannot write to the stream of events.

    From `at_end` on, the end of stdin no longer means that the parent has died: mpiexec closes it early.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    agent_directory = os.environ.pop(JOBS_DIRECTORY, None)
    emit = _create_emit(stdout, agent_directory)
    job = job_type.model_validate_json(_read_job(agent_directory))
    if job.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)
    limit_threads(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    finished = threading.Event()
    threading.Thread(target=_exit_with_parent, args=(job.directory, finished), daemon=True).start()
    status = _run_guarded(job, run, emit)
    if status == 0:
        emit(Done(rank=job.rank))
        if at_end is not None:
            finished.set()
            at_end()
    sys.stderr.flush()
    os._exit(status)  # Skip the slow teardown of torch: peers wait for the sockets to close.


def _create_emit(stdout: int, agent_directory: str | None) -> Emit:
    """Create the function that writes events; the ranks of an agent share its stdout, so it uses a lock."""
    events = os.fdopen(stdout, "wb")
    lock = None if agent_directory is None else (Path(agent_directory) / "events.lock").open("wb")

    def emit(event: BaseModel) -> None:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            events.write(event.model_dump_json().encode() + b"\n")
            events.flush()
        finally:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_UN)

    return emit


def _run_guarded(job: AnyJob, run: Callable[[AnyJob, Emit], None], emit: Emit) -> int:
    try:
        run(job, emit)
    except GpuyardError as error:
        kinds = (MissingRequirement, UserMistake)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "GpuyardError")
        emit(RankRefusal.model_validate({"kind": kind, "message": str(error)}))
        return 1
    except RuntimeError as error:
        traceback.print_exc()
        lost = any(phrase in str(error).lower() for phrase in _LOST_PEER)
        return LOST_PEER_STATUS if lost and job.processes > 1 else 1
    except BaseException:  # noqa: BLE001  The parent reports the last lines of stderr.
        traceback.print_exc()
        return 1
    return 0


def limit_threads(ranks: int) -> None:
    """Divide the node's cores evenly among its ranks, unless the number of threads is set.

    Call this before torch is imported. A single rank keeps torch's default.
    """
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(usable_cores()) // ranks)))


def job_file(directory: str, job: bytes) -> Path:
    """Return the file in which an agent puts the job of one of its ranks."""
    return Path(directory) / f"rank{json.loads(job)['rank']}.job"


def read_lines(count: int) -> list[bytes]:
    """Read N lines from stdin; after them only its end follows."""
    data = b""
    while data.count(b"\n") < count:
        # Read the descriptor: a buffered stdin would hold a lock at exit.
        chunk = os.read(0, 65536)
        if not chunk:
            sys.exit("stdin ended before the last job")
        data += chunk
    return data.splitlines()


def _read_job(agent_directory: str | None) -> bytes:
    """Read the job from stdin, or from the file that the agent wrote for this rank."""
    if agent_directory is None:
        return read_lines(1)[0]
    return (Path(agent_directory) / f"rank{os.environ['RANK']}.job").read_bytes()


def _exit_with_parent(directory: str, finished: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    if finished.is_set():
        return
    shutil.rmtree(directory, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # Include children that user code has started.
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
