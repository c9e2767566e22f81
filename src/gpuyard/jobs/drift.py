"""Find the moment since which a training is slower."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_rough_seconds

_MIN_DRIFT, _DRIFT_NOISE, _MIN_SIDE = 0.08, 4.0, 4
_MAX_BLOCKS = 256  # a month has 40,000 windows, and the search takes the square of this


@dataclass(frozen=True)
class Drift:
    """A lasting change of speed: the time of the change, and how much slower each step is since then."""

    since: float
    slowdown: float
    before_seconds: float  # for which it ran as before

    @property
    def sentence(self) -> str:
        """Return e.g. "It was steady for 3 h, and is 12% slower since 14:05."."""
        since = f"{datetime.fromtimestamp(self.since):%H:%M}"
        before = format_rough_seconds(self.before_seconds)
        return f"It was steady for {before}, and is {self.slowdown:.0%} slower since {since}."


def find_drift(windows: Sequence[RankWindow]) -> Drift | None:
    """Find the moment after which steps are lastingly slower, from the lowest rank that reports."""
    lowest = min(window.rank for window in windows)
    own = [window for window in windows if window.rank == lowest]
    if len(own) < 2 * _MIN_SIDE:
        return None
    steps = [window.step_seconds for window in own]
    split = _find_split(steps)
    before, after = median(steps[:split]), median(steps[split:])
    noise = median(
        [abs(s - before) for s in steps[:split]] + [abs(s - after) for s in steps[split:]]
    )
    slowdown = after / before - 1
    if slowdown < _MIN_DRIFT or after - before < _DRIFT_NOISE * noise:
        return None
    return Drift(own[split].at, slowdown, own[split - 1].at - own[0].at)


def _find_split(steps: Sequence[float]) -> int:
    """Return the index at which two levels explain the times best; among many, first between blocks, then inside."""
    size = -(-len(steps) // _MAX_BLOCKS)
    blocks = [median(steps[i : i + size]) for i in range(0, len(steps), size)]

    def deviation(values: Sequence[float]) -> float:
        center = median(values)
        return sum(abs(value - center) for value in values)

    split = min(
        range(_MIN_SIDE, len(blocks) - _MIN_SIDE + 1),
        key=lambda index: deviation(blocks[:index]) + deviation(blocks[index:]),
    )
    if size == 1:
        return split
    before, after = median(blocks[:split]), median(blocks[split:])
    first, last = (split - 1) * size, min(len(steps), (split + 1) * size)
    return min(
        range(first, last),
        key=lambda index: sum(
            abs(steps[i] - (before if i < index else after)) for i in range(first, last)
        ),
    )
