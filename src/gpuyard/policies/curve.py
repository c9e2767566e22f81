"""A job's scaling curve: how fast it works with each number of GPUs, measured, predicted, or from a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

Speeds = npt.NDArray[np.float64]
SplitSpeed = Callable[[tuple[int, ...]], float]
CurvePoint = tuple[int, float]
"""A number of GPUs and the speed with that many."""


@dataclass(frozen=True)
class StepParts:
    """The predicted parts of one step with this many samples."""

    samples: float
    compute_seconds: float
    exchange_seconds: float
    """The whole exchange, hidden or not."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Work per second by number of GPUs. Each job has its own unit of work: steps, samples, or seconds."""

    packed: Speeds
    """`packed[g]` is the speed with g GPUs on as few machines as possible; 0 if the job cannot run on g GPUs."""
    split: SplitSpeed | None = None
    """The speed for GPU counts by machine, such as (3, 1), largest first. If it is None, splitting costs nothing."""
    across: SplitSpeed | None = None
    """The same for GPUs in several racks. If it is None, that costs no more than splitting within a rack."""
    low: float = 1.0
    """With 90% probability, the true speed is between `low` and `high` times this one."""
    high: float = 1.0
    parts: Mapping[int, StepParts] = field(default_factory=dict)
    """The parts of a step by number of GPUs, if they were predicted."""

    def __post_init__(self) -> None:
        if self.packed.ndim != 1 or len(self.packed) < 2 or self.packed[0] != 0:
            raise ValueError(
                "packed must hold one speed for each number of GPUs from 0, and packed[0] must be 0"
            )
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError("low must be at most 1 and high at least 1")

    @classmethod
    def rigid(cls, gpus: int, speed: float = 1.0) -> "Curve":
        """Return the curve of a job that runs on exactly this number of GPUs."""
        packed = np.zeros(gpus + 1)
        packed[gpus] = speed
        return cls(packed)

    @classmethod
    def from_points(
        cls,
        points: Mapping[int, float],
        max_gpus: int | None = None,
        *,
        low: float = 1.0,
        high: float = 1.0,
    ) -> "Curve":
        """Interpolate measured speeds.

        Between two points, the speed per GPU is interpolated linearly. Beyond the last, the job gets no faster.
        """
        counts = np.array(sorted(points))
        if not len(counts) or counts[0] < 1:
            raise ValueError("a curve needs at least one point with 1 or more GPUs")
        speeds = np.array([points[int(count)] for count in counts], dtype=np.float64)
        useful = np.minimum(np.arange(1, max(int(counts[-1]), max_gpus or 0) + 1), counts[-1])
        efficiency = np.interp(useful, counts, speeds / counts)
        packed = np.concatenate(([0.0], efficiency * useful))
        return cls(packed, low=low, high=high)

    @property
    def max_gpus(self) -> int:
        """The largest number of GPUs that the curve covers."""
        return len(self.packed) - 1

    @cached_property
    def best(self) -> Speeds:
        """`best[g]` is the highest speed with up to g GPUs; those that would only slow the job stay idle."""
        return np.maximum.accumulate(self.packed)

    def hull(self, min_gpus: int, max_gpus: int) -> tuple[CurvePoint, ...]:
        """Return the concave hull over 0 and min_gpus … max_gpus: each further step gains less per GPU."""
        if (min_gpus, max_gpus) not in self._hulls:
            counts = range(max(1, min_gpus), min(max_gpus, self.max_gpus) + 1)
            points = [(gpus, float(self.packed[gpus])) for gpus in counts]
            self._hulls[min_gpus, max_gpus] = tuple(concave_hull(points))
        return self._hulls[min_gpus, max_gpus]

    @cached_property
    def _hulls(self) -> dict[tuple[int, int], tuple[CurvePoint, ...]]:
        return {}

    def speed(self, gpus: int) -> float:
        """Return the speed on as few machines as possible; beyond `max_gpus` it stays the same."""
        return float(self.packed[min(gpus, self.max_gpus)])

    def speed_on(self, by_machine: Sequence[int], racks: int = 1) -> float:
        """Return the speed with these numbers of GPUs per machine, in any order, in that many racks."""
        counts = tuple(sorted((n for n in by_machine if n), reverse=True))
        split = self.across if racks > 1 and self.across is not None else self.split
        if split is None or not counts:
            return self.speed(sum(counts))
        return split(counts)

    def seconds(self, work: float, gpus: int) -> float:
        """Return how long that work takes; infinity if the job cannot run on that many GPUs."""
        speed = self.speed(gpus)
        return work / speed if speed > 0 else float("inf")


def concave_hull(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the upper concave hull from (0, 0) to the fastest point; points are ordered by GPUs."""
    hull: list[CurvePoint] = [(0, 0.0)]
    for gpus, speed in points:
        if speed <= hull[-1][1]:
            continue
        while len(hull) > 1:
            (before, slow), (last, fast) = hull[-2:]
            if (fast - slow) * (gpus - last) > (speed - fast) * (last - before):
                break
            hull.pop()
        hull.append((gpus, speed))
    return hull
