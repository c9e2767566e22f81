"""Find the moment since which a training is slower, and the part of its step that grew."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Literal

from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_rough_seconds, format_seconds

StepPart = Literal["compute", "CPU wait", "exchange", "input"]
_CLAUSES: dict[StepPart, str] = {
    "compute": "computing takes",
    "CPU wait": "waiting for a CPU takes",
    "exchange": "exchanging, or waiting for other ranks, takes",
    "input": "waiting for input takes",
}

_MIN_DRIFT, _DRIFT_NOISE, _MIN_SIDE = 0.08, 4.0, 4
_MAX_BLOCKS = 256  # a month has 40,000 windows, and the search takes the square of this


@dataclass(frozen=True)
class Drift:
    """A lasting change of speed: the time of the change, and how much slower each step is since then."""

    since: float
    slowdown: float
    before_seconds: float  # for which it ran as before
    part: StepPart  # the part of the step that grew most
    part_seconds: tuple[float, float]  # of that part, before and after

    @property
    def lost_share(self) -> float:
        """The share of each step that it costs."""
        return self.slowdown / (1 + self.slowdown)

    @property
    def clause(self) -> str:
        """Return e.g. "it is 12% slower since 14:05, and was steady before for 3 h: computing takes 56 ms instead of 50 ms"."""
        since = f"{datetime.fromtimestamp(self.since):%H:%M}"
        before, after = (format_seconds(seconds) for seconds in self.part_seconds)
        return (
            f"it is {self.slowdown:.0%} slower since {since}, and was steady for "
            f"{format_rough_seconds(self.before_seconds)} before: {_CLAUSES[self.part]} {after} instead of {before}"
        )


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
    part, seconds = _find_grown_part(own[:split], own[split:])
    return Drift(own[split].at, slowdown, own[split - 1].at - own[0].at, part, seconds)


def _find_grown_part(
    before: Sequence[RankWindow], after: Sequence[RankWindow]
) -> tuple[StepPart, tuple[float, float]]:
    """Return the part of the step that grew most, with its seconds before and after."""

    def measure(windows: Sequence[RankWindow]) -> dict[StepPart, float]:
        return {
            "CPU wait": median(w.cpu_wait * w.step_seconds for w in windows),
            "compute": median(w.compute_seconds for w in windows),
            "exchange": median(w.exchange_seconds or 0.0 for w in windows),
            "input": median(w.input_seconds or 0.0 for w in windows),
        }

    earlier, later = measure(before), measure(after)
    growth = {part: later[part] - earlier[part] for part in later}
    # the wait for a CPU is part of the computation, and explains it
    del growth["compute" if growth["CPU wait"] > growth["compute"] / 2 else "CPU wait"]
    part = max(growth, key=growth.__getitem__)
    return part, (earlier[part], later[part])


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
