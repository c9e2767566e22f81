"""The time that a sweep has left."""

import time
from collections.abc import Sequence

from gpuyard.measure.training.sweep import Point

_START_SECONDS = 4.0  # a first guess of what starting ranks costs


class Clock:
    """A first guess for each point, corrected by how long the finished ones took."""

    def __init__(self, seconds_per_point: float, missing: Sequence[Point]) -> None:
        self._guess = 1.0 + 1.3 * seconds_per_point
        self._left = dict.fromkeys(missing, self._guess)
        starts: set[int] = set()
        for point in missing:
            if point.workers not in starts:
                starts.add(point.workers)
                self._left[point] += _START_SECONDS
        self._guessed_done = 0.0
        self._began = time.monotonic()

    def finished(self, point: Point) -> None:
        self._guessed_done += self._left.pop(point)

    def left(self, fraction: float) -> float:
        guessed = sum(self._left.values()) - fraction * self._guess
        if not self._guessed_done:
            return max(0.0, guessed)
        done = self._guessed_done + fraction * self._guess
        return max(0.0, guessed) * (time.monotonic() - self._began) / done
