"""The rank process: `python -m gpuyard.measure.worker` with one JSON job on stdin, events on stdout.

When its stdin ends, the sweep that started it is gone, and so is this process.
"""

import gc
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TextIO

from pydantic import BaseModel

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.measure.job import LOST_PEER_STATUS, RankJob, Refusal
from gpuyard.workloads.resolve import require_torch

Emit = Callable[[BaseModel], None]
_LOST_PEER = ("closed by peer", "connection reset", "broken pipe", "timed out", "nccl error")


def main() -> None:
    """Run one job and exit; nothing of a user's code can write into the stream of events."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = RankJob.model_validate_json(_read_line())
    threading.Thread(target=_leave_with_parent, args=(job.directory,), daemon=True).start()
    status = _run_guarded(job, events)
    events.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: tearing torch down takes time, and peers wait for the sockets


def _run_guarded(job: RankJob, events: TextIO) -> int:
    def emit(event: BaseModel) -> None:
        events.write(event.model_dump_json() + "\n")
        events.flush()

    try:
        _run(job, emit)
    except GpuyardError as error:
        kinds = (MissingRequirement, UserMistake)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "GpuyardError")
        emit(Refusal.model_validate({"kind": kind, "sentence": str(error)}))
        return 1
    except RuntimeError as error:
        traceback.print_exc()
        lost = any(sign in str(error).lower() for sign in _LOST_PEER)
        return LOST_PEER_STATUS if lost and job.processes > 1 else 1
    except BaseException:  # noqa: BLE001  the last lines of stderr are the report
        traceback.print_exc()
        return 1
    return 0


def _run(job: RankJob, emit: Emit) -> None:
    require_torch()
    if job.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)
    import torch

    from gpuyard.measure.peers import Peers
    from gpuyard.measure.point import measure_point, read_samples
    from gpuyard.measure.training import set_precision

    if job.cores:
        torch.set_num_threads(len(job.cores))
    set_precision(job.workload.precision)
    device = torch.device("cpu")
    if job.device == "cuda":
        device = torch.device("cuda", job.rank if job.local_rank is None else job.local_rank)
        torch.cuda.set_device(device)
    samples = read_samples(job)
    peers = Peers(job)
    report: Emit = emit if job.rank == 0 else lambda _event: None
    for batch in job.batches:
        report(
            measure_point(
                job, batch, device=device, peers=peers, samples=samples, on_progress=report
            )
        )
        gc.collect()  # the last point's graph, before the next one is built
        if job.device == "cuda":
            torch.cuda.empty_cache()
    peers.leave()


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        # byte by byte from the descriptor: a buffered stdin would hold a lock at exit
        character = os.read(0, 1)
        if not character:
            sys.exit("the job ended before its end of line")
        line += character
    return line


def _leave_with_parent(directory: str) -> None:
    while os.read(0, 1024):
        pass
    shutil.rmtree(directory, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # with the children that a user's code has started
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
