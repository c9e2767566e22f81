"""A rank process: one JSON job on stdin, or from its agent, and events on stdout, one a line.

When its stdin ends, who started it is gone, and so is this process.
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
    """Run one job on its cores and exit; nothing of a user's code can write into the stream of events.

    From `at_end` on, an end of stdin is not taken for a death of the parent: mpiexec closes it early.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    of_agent = os.environ.pop(JOBS_DIRECTORY, None)
    emit = _emitting(stdout, of_agent)
    job = job_type.model_validate_json(_own_job(of_agent))
    if job.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)
    share_cores(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    finished = threading.Event()
    threading.Thread(target=_leave_with_parent, args=(job.directory, finished), daemon=True).start()
    status = _run_guarded(job, run, emit)
    if status == 0:
        emit(Done(rank=job.rank))
        if at_end is not None:
            finished.set()
            at_end()
    sys.stderr.flush()
    os._exit(status)  # at once: tearing torch down takes time, and peers wait for the sockets


def _emitting(stdout: int, of_agent: str | None) -> Emit:
    """The ranks of an agent share its stdout, and long lines must not get into each other."""
    events = os.fdopen(stdout, "wb")
    lock = None if of_agent is None else (Path(of_agent) / "events.lock").open("wb")

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
        emit(RankRefusal.model_validate({"kind": kind, "sentence": str(error)}))
        return 1
    except RuntimeError as error:
        traceback.print_exc()
        lost = any(sign in str(error).lower() for sign in _LOST_PEER)
        return LOST_PEER_STATUS if lost and job.processes > 1 else 1
    except BaseException:  # noqa: BLE001  the last lines of stderr are the report
        traceback.print_exc()
        return 1
    return 0


def share_cores(ranks: int) -> None:
    """Where nobody says how many threads a rank has, the ranks of a node share its cores evenly.

    Called before torch is imported. One rank alone takes what torch takes by itself.
    """
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(usable_cores()) // ranks)))


def job_file(directory: str, job: bytes) -> Path:
    """Where an agent puts the job of one of its ranks."""
    return Path(directory) / f"rank{json.loads(job)['rank']}.job"


def read_lines(count: int) -> list[bytes]:
    """So many lines of stdin, after which nothing comes but its end."""
    said = b""
    while said.count(b"\n") < count:
        # from the descriptor: a buffered stdin would hold a lock at exit
        more = os.read(0, 65536)
        if not more:
            sys.exit("stdin ended before the last job")
        said += more
    return said.splitlines()


def _own_job(of_agent: str | None) -> bytes:
    """From stdin, or, where one agent has started several ranks, from the file that it wrote for this one."""
    if of_agent is None:
        return read_lines(1)[0]
    return (Path(of_agent) / f"rank{os.environ['RANK']}.job").read_bytes()


def _leave_with_parent(directory: str, finished: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    if finished.is_set():
        return
    shutil.rmtree(directory, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # with the children that a user's code has started
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
