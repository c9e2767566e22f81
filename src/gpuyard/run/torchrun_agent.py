"""torchrun's agent on one node: `python -m gpuyard.run.torchrun_agent DIRECTORY RANKS OPTIONS COMMAND…`.

It is torchrun but for five things: it reads the jobs of its ranks from stdin, one a line, and hands each rank
its own; it meets the other agents through the run's own store, which the first agent keeps for all; it says
which rank has failed first, and ends as that one did, so that who started it can tell a fault from a lost peer;
it leaves when who started it has gone; and it leaves no files behind: they are in the run's directory, where
this node has that.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel

from gpuyard.interpreter import import_to_stay
from gpuyard.run.protocol import (
    JOBS_DIRECTORY,
    LOST_PEER_STATUS,
    RANK_PREFIX,
    TORCHRUN_BACKEND,
    Failed,
    Rendezvous,
)
from gpuyard.run.rank_process import job_file, read_lines, share_cores
from gpuyard.temporary import held_directory, shared_directory

# on a socket, which sshd may give as stdin, the other side's end is not POLLHUP
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_LEAVE_SECONDS = 10.0


def main(arguments: list[str]) -> None:
    """Run torchrun and exit as the rank that failed first did."""
    directory, ranks, *options = arguments
    here = Path(directory).is_dir()
    with held_directory(Path(directory) if here else shared_directory(), "torchrun") as own:
        left_behind = directory if here else str(own)
        jobs = read_lines(int(ranks))
        for job in jobs:
            job_file(str(own), job).write_bytes(job)
        threading.Thread(target=_leave_with_parent, args=(left_behind,), daemon=True).start()
        os.environ[JOBS_DIRECTORY] = str(own)
        share_cores(int(ranks))
        try:
            status = _run(
                [f"--log-dir={own}", "--tee=2", *options], _FirstJob.model_validate_json(jobs[0])
            )
        finally:
            if _parent_is_gone(0):
                shutil.rmtree(left_behind, ignore_errors=True)
    sys.stderr.flush()
    if status < 0:  # as the rank was, so that it is told as that
        with contextlib.suppress(OSError):  # SIGKILL has no other way
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)  # at once: all ranks are gone


class _FirstJob(BaseModel):
    """What an agent has to know of the jobs of its ranks."""

    rank: int
    silence_seconds: float
    rendezvous: Rendezvous | None = None


def _run(arguments: list[str], job: _FirstJob) -> int:
    os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = RANK_PREFIX.format("${rank}")
    import_to_stay("torch.distributed.run")
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    from gpuyard.run.torchrun_rendezvous import AgentRendezvous

    rendezvous_handler_registry.register(
        TORCHRUN_BACKEND,
        lambda asked: AgentRendezvous(
            asked, job.rendezvous, keeps=job.rank == 0, seconds=job.silence_seconds
        ),
    )
    ended = _noting_whom_it_ends()
    try:
        run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        followed = {
            rank: fault.exitcode == LOST_PEER_STATUS or (fault.exitcode < 0 and fault.pid in ended)
            for rank, fault in failed.failures.items()
        }
        rank, fault = min(
            failed.failures.items(), key=lambda one: (followed[one[0]], one[1].timestamp)
        )
        sys.stdout.write(Failed(rank=rank, status=fault.exitcode).model_dump_json() + "\n")
        sys.stdout.flush()
        return fault.exitcode
    return 0


def _noting_whom_it_ends() -> set[int]:
    """The ranks that still run when torchrun ends all, as it does when it has seen one fail: by their pid.

    It names them as failed, too, and gives times in whole seconds, which don't tell them from that one.
    """
    from torch.distributed.elastic.multiprocessing import PContext

    ended: set[int] = set()
    close = PContext.close

    def noting(self: PContext, *arguments: Any, **options: Any) -> None:
        ended.update(pid for pid in self.pids().values() if _runs(pid))
        close(self, *arguments, **options)

    PContext.close = noting  # type: ignore[method-assign]
    return ended


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _parent_is_gone(most_seconds: float | None) -> bool:
    """Looking at stdin takes nothing of its end away from the ranks, which wait for it."""
    stdin = select.poll()
    stdin.register(0, _GONE)
    return bool(stdin.poll(None if most_seconds is None else 1000 * most_seconds))


def _leave_with_parent(left_behind: str) -> None:
    """The ranks leave by themselves when stdin ends; what they shared goes after them."""
    _parent_is_gone(None)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while psutil.Process().children() and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(left_behind, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
