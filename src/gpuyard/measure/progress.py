"""The progress of a bench, and an estimate of its remaining time."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressUpdate:
    """The current values of a progress bar."""

    description: str
    done: float = 0.0  # of `total`
    total: float | None = None  # None: unknown
    remaining_seconds: float | None = None
    message: str = ""  # printed above the bar


ProgressCallback = Callable[[ProgressUpdate], None]


class ProgressMeter:
    """Tracks how much of each task is done, and estimates the rest from the pace so far."""

    def __init__(self, tasks: Mapping[Hashable, float] | Iterable[Hashable]) -> None:
        """Pass the expected seconds of each task to get an estimate before the first has finished."""
        self._has_estimates = isinstance(tasks, Mapping)
        self._work = dict(tasks) if isinstance(tasks, Mapping) else dict.fromkeys(tasks, 1.0)
        self._total = len(self._work)
        self._fractions: dict[Hashable, float] = {}
        self._start = time.monotonic()

    def skip(self, task: Hashable) -> None:
        """Count a task as done without any time spent on it."""
        self._work[task] = 0.0
        self._fractions[task] = 1.0

    def advance(self, task: Hashable, fraction: float, description: str) -> ProgressUpdate:
        """Set the fraction of a task that is done; 0 if it has to be repeated."""
        self._fractions[task] = fraction
        return ProgressUpdate(
            description,
            sum(self._fractions.values()),
            self._total,
            self._estimate_remaining_seconds(),
        )

    def _estimate_remaining_seconds(self) -> float | None:
        done = sum(self._work[task] * fraction for task, fraction in self._fractions.items())
        remaining = sum(self._work.values()) - done
        has_finished_task = any(self._work[t] and f == 1.0 for t, f in self._fractions.items())
        if done and (has_finished_task or not self._has_estimates):
            return remaining * (time.monotonic() - self._start) / done
        return remaining if self._has_estimates else None
