"""How much of our cores others used while we measured."""

import contextlib
import os
import time
from collections.abc import Sequence

import psutil


class ForeignLoad:
    """Compares what the cores did with what our processes did; None where the cores are elsewhere."""

    def __init__(self, cores_by_worker: Sequence[Sequence[int]]) -> None:
        self._cores = sorted({core for cores in cores_by_worker for core in cores})
        self._start: tuple[float, float, float] | None = None

    def begin(self) -> None:
        """Count from here."""
        self._start = self._now()

    def share(self) -> float | None:
        """The part of our cores' time that went to others since then."""
        if self._start is None or not self._cores:
            return None
        began, busy_before, own_before = self._start
        now, busy, own = self._now()
        elapsed = (now - began) * len(self._cores)
        if elapsed <= 0:
            return None
        return max(0.0, (busy - busy_before) - (own - own_before)) / elapsed

    def _now(self) -> tuple[float, float, float]:
        # interrupts are left out: on a lab's shaped links they are our own traffic
        times = psutil.cpu_times(percpu=True)
        busy = sum(
            t.user + t.nice + t.system + getattr(t, "steal", 0.0)
            for core, t in enumerate(times)
            if core in self._cores
        )
        return time.monotonic(), busy, _own_cpu_seconds()


def _own_cpu_seconds() -> float:
    me = psutil.Process(os.getpid())
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            used = process.cpu_times()
            total += used.user + used.system
    return total
