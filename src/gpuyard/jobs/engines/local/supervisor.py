"""`python -m gpuyard.jobs.engines.local.supervisor DIRECTORY LOCK`: waits for a lease, runs a job's command on it, and
writes down how it ended. It needs nobody: whoever started it may be gone."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.local.paths import StartPaths
from gpuyard.jobs.engines.local.start import (
    How,
    Order,
    StartEnd,
    StartProgress,
    read_order,
    write_end,
    write_progress,
)
from gpuyard.jobs.log_files import open_log
from gpuyard.share.launcher import cut_again, run_leased
from gpuyard.share.service.desk import Desk, open_desk
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import Lease, LeaseRequest
from gpuyard.share.turns.queue import Turn
from gpuyard.share.turns.waiting import wait_for_lease
from gpuyard.share.watch.processes import start_time

_AGAIN_SECONDS = 2.0


class _Stopped(BaseException):
    """Somebody wants it no more, while it waits."""


class Supervisor:
    """One start of one job."""

    def __init__(self, paths: StartPaths, order: Order) -> None:
        self._paths = paths
        self._order = order
        self._pid, self._process_start = os.getpid(), start_time(os.getpid())
        self._end: StartEnd | None = None

    def run(self) -> None:
        """To its end, whatever that is; it is written down."""
        signal.signal(signal.SIGTERM, _stop)
        self._tell()
        try:
            os.chdir(self._order.cwd)
            desk, lease, lock = self._lease()
            self._run_on(desk, lease, lock)
        except _Stopped:
            self._write(StartEnd("stopped", time.time()))
        except UserMistake as mistake:  # this can't be had here, and asking again won't change it
            self._write(StartEnd("refused", time.time(), reason=str(mistake)))
        except OSError as error:
            self._write(
                StartEnd("refused", time.time(), reason=f"{error.filename}: {error.strerror}")
            )
        while self._end is not None:  # a disk that was full: nobody else knows how it ended
            time.sleep(_AGAIN_SECONDS)
            self._write(self._end)

    def _lease(self) -> tuple[Desk, Lease, int]:
        request = LeaseRequest(
            count=self._order.gpus,
            seconds=self._order.seconds,
            command=self._order.title,
            project=self._order.project,
        )
        while True:
            try:
                desk = open_desk()
                return (desk, *wait_for_lease(desk, request, None, self._wait))
            except UserMistake:
                raise
            except GpuyardError as error:  # the lease service may come back
                self._tell(waits_for=str(error))
                time.sleep(_AGAIN_SECONDS)

    def _wait(self, turn: Turn) -> None:
        why = f": {turn.reason}" if turn.reason else ""
        self._tell(
            waits_for=f"number {turn.position} in the queue for GPUs{why}", place=turn.lease.id
        )

    def _run_on(self, desk: Desk, lease: Lease, lock: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # from here on it is passed on
        self._tell(lease=lease.id, gpus=lease.gpus, started=time.time())

        def ended(status: int) -> None:
            self._write(self._ended(status, lease, lock))

        run_leased(desk, lease, lock, self._order.argv, ended)

    def _ended(self, status: int, lease: Lease, lock: int) -> StartEnd:
        lease = cut_again(lease, lock)
        over = lease.until_boot is not None and lease.until_boot <= Clock().boot()
        how: How = "exit"
        if over and status != 0:
            how = "time" if lease.seconds is not None else "evicted"
        return StartEnd(how, time.time(), exit_status=status)

    def _tell(
        self,
        *,
        waits_for: str = "",
        place: str = "",
        lease: str = "",
        gpus: tuple[int, ...] = (),
        started: float | None = None,
    ) -> None:
        with contextlib.suppress(GpuyardError):  # a full disk stops no job
            write_progress(
                self._paths,
                StartProgress(
                    self._pid, self._process_start, waits_for, place, lease, gpus, started
                ),
            )

    def _write(self, end: StartEnd) -> None:
        self._end = end
        with contextlib.suppress(GpuyardError):
            write_end(self._paths, end)
            self._end = None


def _stop(*_: object) -> NoReturn:
    raise _Stopped


def main() -> None:
    paths = StartPaths(Path(sys.argv[1]))
    # the lock is inherited by all that the command starts, as it was by us
    os.set_inheritable(int(sys.argv[2]), True)
    order = read_order(paths)
    log = open_log(paths.log)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(order.environment)
    Supervisor(paths, order).run()


if __name__ == "__main__":
    main()
