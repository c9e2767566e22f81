"""How far a bench is, and the time that it has left."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressUpdate:
    """What a progress bar shows."""

    what: str
    done: float = 0.0  # of `total`
    total: float | None = None  # None: nobody knows
    left_seconds: float | None = None
    line: str = ""  # to be kept above the bar


Tell = Callable[[ProgressUpdate], None]


class ProgressMeter:
    """Tasks, how much of each is done, and the rest at the pace of what was done so far."""

    def __init__(self, tasks: Mapping[Hashable, float] | Iterable[Hashable]) -> None:
        """With a guess of seconds for each task there is an estimate before the first is finished."""
        self._guessed = isinstance(tasks, Mapping)
        self._work = dict(tasks) if isinstance(tasks, Mapping) else dict.fromkeys(tasks, 1.0)
        self._total = len(self._work)
        self._fractions: dict[Hashable, float] = {}
        self._began = time.monotonic()

    def skip(self, task: Hashable) -> None:
        """It needs no time: somebody has done it before."""
        self._work[task] = 0.0
        self._fractions[task] = 1.0

    def at(self, task: Hashable, fraction: float, what: str) -> ProgressUpdate:
        """So much of this task is done now; 0 where it has to be done again."""
        self._fractions[task] = fraction
        return ProgressUpdate(
            what, sum(self._fractions.values()), self._total, self._left_seconds()
        )

    def _left_seconds(self) -> float | None:
        done = sum(self._work[task] * fraction for task, fraction in self._fractions.items())
        left = sum(self._work.values()) - done
        finished = any(self._work[t] and f == 1.0 for t, f in self._fractions.items())
        if done and (finished or not self._guessed):
            return left * (time.monotonic() - self._began) / done
        return left if self._guessed else None
