"""torchrun's agent on one node: `python -m gpuyard.run.torchrun_agent DIRECTORY RANKS OPTIONS COMMAND…`.

It differs from torchrun in five ways:

- It reads the jobs of its ranks from stdin, one per line, and passes each rank its own.
- It uses the run's own store as rendezvous, which the first agent serves for all.
- It reports its first failed rank and exits with the same status, so that its parent can tell a fault from a lost peer.
- It exits when its parent has gone.
- It leaves no files behind: they are in the run's directory, if this node has that.
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

from gpuyard.interpreter import import_permanently
from gpuyard.run.protocol import (
    JOBS_DIRECTORY,
    LOST_PEER_STATUS,
    RANK_PREFIX,
    TORCHRUN_BACKEND,
    Failed,
    Rendezvous,
)
from gpuyard.run.rank_process import job_file, limit_threads, read_lines
from gpuyard.temporary import shared_directory, temporary_directory

# stdin from sshd may be a socket, which reports a closed peer with POLLRDHUP instead of POLLHUP.
_CLOSED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_LEAVE_SECONDS = 10.0


def main(arguments: list[str]) -> None:
    """Run torchrun and exit with the status of the first failed rank."""
    directory, ranks, *options = arguments
    is_shared = Path(directory).is_dir()
    with temporary_directory(
        Path(directory) if is_shared else shared_directory(), "torchrun"
    ) as own:
        temporary = directory if is_shared else str(own)
        jobs = read_lines(int(ranks))
        for job in jobs:
            job_file(str(own), job).write_bytes(job)
        threading.Thread(target=_exit_with_parent, args=(temporary,), daemon=True).start()
        os.environ[JOBS_DIRECTORY] = str(own)
        limit_threads(int(ranks))
        try:
            status = _run(
                [f"--log-dir={own}", "--tee=2", *options], _FirstJob.model_validate_json(jobs[0])
            )
        finally:
            if _parent_is_gone(0):
                shutil.rmtree(temporary, ignore_errors=True)
    sys.stderr.flush()
    if status < 0:  # The rank was killed by a signal.
        with contextlib.suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)  # Skip the cleanup: all ranks have exited.


class _FirstJob(BaseModel):
    """The part of its ranks' jobs that an agent needs."""

    rank: int
    silence_seconds: float
    rendezvous: Rendezvous | None = None


def _run(arguments: list[str], job: _FirstJob) -> int:
    os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = RANK_PREFIX.format("${rank}")
    import_permanently("torch.distributed.run")
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    from gpuyard.run.torchrun_rendezvous import AgentRendezvous

    rendezvous_handler_registry.register(
        TORCHRUN_BACKEND,
        lambda parameters: AgentRendezvous(
            parameters, job.rendezvous, serves=job.rank == 0, seconds=job.silence_seconds
        ),
    )
    stopped = _record_stopped_ranks()
    try:
        run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        is_consequence = {
            rank: fault.exitcode == LOST_PEER_STATUS
            or (fault.exitcode < 0 and fault.pid in stopped)
            for rank, fault in failed.failures.items()
        }
        rank, fault = min(
            failed.failures.items(), key=lambda item: (is_consequence[item[0]], item[1].timestamp)
        )
        sys.stdout.write(Failed(rank=rank, status=fault.exitcode).model_dump_json() + "\n")
        sys.stdout.flush()
        return fault.exitcode
    return 0


def _record_stopped_ranks() -> set[int]:
    """Return a set that collects the PIDs of the ranks that torchrun stops after it has seen one fail.

    torchrun reports them as failed as well, and its timestamps in whole seconds do not show which failed first.
    """
    from torch.distributed.elastic.multiprocessing import PContext

    stopped: set[int] = set()
    close = PContext.close

    def record_and_close(self: PContext, *arguments: Any, **options: Any) -> None:
        stopped.update(pid for pid in self.pids().values() if _is_running(pid))
        close(self, *arguments, **options)

    PContext.close = record_and_close  # type: ignore[method-assign]
    return stopped


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _parent_is_gone(timeout_seconds: float | None) -> bool:
    """Poll stdin without reading it, so that the ranks still see its end."""
    stdin = select.poll()
    stdin.register(0, _CLOSED)
    return bool(stdin.poll(None if timeout_seconds is None else 1000 * timeout_seconds))


def _exit_with_parent(temporary: str) -> None:
    """Wait for the end of stdin, on which the ranks exit by themselves, and remove their files."""
    _parent_is_gone(None)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while psutil.Process().children() and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(temporary, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
