"""How fast one job works with so many GPUs: its scaling curve, measured, predicted or from a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Speeds = npt.NDArray[np.float64]
SplitSpeed = Callable[[tuple[int, ...]], float]
CurvePoint = tuple[int, float]
"""A number of GPUs, and the speed with it."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Work per second by number of GPUs; the unit of work is the job's own (steps, samples, seconds of its run)."""

    packed: Speeds
    """`packed[g]`: with g GPUs on as few machines as hold them; `packed[0]` is 0, and so is a number it can't run on."""
    split: SplitSpeed | None = None
    """Work per second for GPUs by machine, e.g. (3, 1), largest first; without it a split costs nothing."""
    across: SplitSpeed | None = None
    """The same for GPUs of several racks; without it that costs no more than a split."""
    low: float = 1.0
    """The true speed is between `low` and `high` times this one, with 90 % probability."""
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.packed.ndim != 1 or len(self.packed) < 2 or self.packed[0] != 0:
            raise ValueError("packed speeds are one for each number of GPUs from 0, and 0 for none")
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError("low is at most 1 and high at least 1")

    @classmethod
    def rigid(cls, gpus: int, speed: float = 1.0) -> "Curve":
        """Runs on this number of GPUs and no other."""
        packed = np.zeros(gpus + 1)
        packed[gpus] = speed
        return cls(packed)

    @classmethod
    def of_points(
        cls,
        points: Mapping[int, float],
        most: int | None = None,
        *,
        low: float = 1.0,
        high: float = 1.0,
    ) -> "Curve":
        """From measured speeds by GPUs; between two of them efficiency (speed per GPU) is interpolated linearly,
        beyond the last it doesn't get faster."""
        counts = np.array(sorted(points))
        if not len(counts) or counts[0] < 1:
            raise ValueError("a curve needs the speed of at least one number of GPUs")
        speeds = np.array([points[int(count)] for count in counts], dtype=np.float64)
        every = np.arange(1, max(int(counts[-1]), most or 0) + 1)
        efficiency = np.interp(np.minimum(every, counts[-1]), counts, speeds / counts)
        packed = np.concatenate(([0.0], efficiency * np.minimum(every, counts[-1])))
        return cls(packed, low=low, high=high)

    @property
    def most_gpus(self) -> int:
        """The largest number it says something about."""
        return len(self.packed) - 1

    @cached_property
    def best(self) -> Speeds:
        """`best[g]`: with up to g GPUs, leaving idle those that would only slow it."""
        return np.maximum.accumulate(self.packed)

    def hull(self, least: int, most: int) -> tuple[CurvePoint, ...]:
        """Its concave hull from no GPU over least … most: where each further step gains less per GPU."""
        if (least, most) not in self._hulls:
            top = min(most, self.most_gpus)
            points = [(gpus, float(self.packed[gpus])) for gpus in range(max(1, least), top + 1)]
            self._hulls[least, most] = tuple(hull_of(points))
        return self._hulls[least, most]

    @cached_property
    def _hulls(self) -> dict[tuple[int, int], tuple[CurvePoint, ...]]:
        return {}

    def speed(self, gpus: int) -> float:
        """Packed; past its end as at its end."""
        return float(self.packed[min(gpus, self.most_gpus)])

    def speed_on(self, by_machine: Sequence[int], racks: int = 1) -> float:
        """With so many GPUs of each machine, in any order, in so many racks."""
        counts = tuple(sorted((n for n in by_machine if n), reverse=True))
        split = self.across if racks > 1 and self.across is not None else self.split
        if split is None or not counts:
            return self.speed(sum(counts))
        return split(counts)

    def seconds(self, work: float, gpus: int) -> float:
        """How long that work takes; infinite where it can't run."""
        speed = self.speed(gpus)
        return work / speed if speed > 0 else float("inf")


def hull_of(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """The upper concave hull of points with growing numbers of GPUs, from (0, 0) to the fastest."""
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
