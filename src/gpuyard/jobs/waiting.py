"""Waiting until jobs have ended."""

import contextlib
import time
from collections.abc import Callable, Sequence

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import Engine, engine
from gpuyard.jobs.job import Handle, JobStatus
from gpuyard.jobs.reported import keep_reported

_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 2.0


def wait_for(
    handles: Sequence[Handle],
    *,
    wait_seconds: float | None = None,
    tell: Callable[[JobStatus], None] = lambda _: None,
) -> list[JobStatus]:
    """How each ended, or how far it is when the time to wait is over; `tell` hears of each end."""
    engines = {name: engine(name) for name in {handle.engine for handle in handles}}
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    found: dict[Handle, JobStatus] = {}
    pause = _FIRST_SECONDS
    while True:
        for handle in handles:
            if handle not in found or not found[handle].final:
                found[handle] = engines[handle.engine].status(handle)
                if found[handle].final:
                    tell(found[handle])
                    _keep_measurements(engines[handle.engine], handle)
        over = deadline is not None and time.monotonic() >= deadline
        if over or all(status.final for status in found.values()):
            return [found[handle] for handle in handles]
        left = _LONGEST_SECONDS if deadline is None else max(0.01, deadline - time.monotonic())
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_SECONDS)


def _keep_measurements(runs_it: Engine, handle: Handle) -> None:
    if not runs_it.keeps_measurements:
        with contextlib.suppress(GpuyardError):  # `gpuyard results add` says why
            keep_reported(runs_it.job(handle), handle, runs_it.reports(handle))
