"""Judge a running training: numbers of its ranks in, a verdict out.

A synchronous step ends when the slowest rank has finished, so a rank that computes longer lets all others wait in the
exchange. The shortest exchange of all ranks is therefore communication; the rest of the others' exchange is waiting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_seconds

CauseName = Literal[
    "input starved", "slow rank", "slow link", "throttled clock", "other job", "wrong batch", "precision"
]  # fmt: skip
_MIN_COST = 0.1  # of a step; smaller losses are noise
_LINK_TOLERANCE = 1.3  # times the expected exchange
_BUSY_TOLERANCE = 3.0  # more of it per share of time that the ranks wait for CPUs
_COMPUTE_TOLERANCE = 1.25  # times the expected compute
_PRECISION_RATIO = (
    1.7  # a step that should use tensor cores and does not is at least this much slower
)
_BUSY_CPU = 0.1  # share of the time that a process waits for a CPU
_CROWDED_RATIO, _CROWDED_COST = 1.4, 0.15  # a rank stands out on a machine where all wait for CPUs
_SAMPLES_TOLERANCE = 0.02
_RECENT = 8  # windows of each rank that a verdict looks at
_MIN_DRIFT, _DRIFT_NOISE, _MIN_SIDE = 0.08, 4.0, 4


@dataclass(frozen=True)
class RankTimes:
    """The mean seconds of one step of one rank by phase."""

    rank: int
    host: str
    gpu: int | None
    step: float
    compute: float
    input: float
    exchange: float | None
    cpu_wait: float

    @property
    def own_compute(self) -> float:
        """The seconds in which it had a CPU."""
        return self.compute * (1 - self.cpu_wait)

    @property
    def name(self) -> str:
        where = ", ".join(filter(None, [self.host, "" if self.gpu is None else f"GPU {self.gpu}"]))
        return f"rank {self.rank}" + (f" ({where})" if where else "")


@dataclass(frozen=True)
class Expectation:
    """The predicted step; None where the prediction says nothing."""

    low_seconds: float
    high_seconds: float
    compute_seconds: float | None = None
    exchange_seconds: float | None = None
    samples_per_step: float | None = None
    throttled_ranks: frozenset[int] = frozenset()  # whose GPU reports a reduced clock


@dataclass(frozen=True)
class Cause:
    """A likely cause, what it costs as a share of each step, and a clause that names it."""

    name: CauseName
    cost: float
    clause: str
    rank: int | None = None


@dataclass(frozen=True)
class Drift:
    """A lasting change of speed: the time of the change, and how much slower each step is since then."""

    since: float
    slowdown: float
    before_seconds: float  # for which it ran as before


@dataclass(frozen=True)
class Verdict:
    """The judgment: normal or not, causes with the most expensive first, and drift."""

    step_seconds: float
    normal: bool
    share_of_expected: float | None  # speed relative to the slow end of the prediction's middle
    causes: tuple[Cause, ...]
    drift: Drift | None
    ranks: tuple[RankTimes, ...]

    @property
    def lost_share(self) -> float:
        """The lost share of the time: the gap to the prediction or the most expensive cause; 0 if normal."""
        if self.normal:
            return 0.0
        gap = 0.0 if self.share_of_expected is None else 1 - self.share_of_expected
        costs = [cause.cost for cause in self.causes if cause.name != "wrong batch"]
        return max(0.0, gap, *costs)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, without the drift."""
        speed = ""
        if self.share_of_expected is not None:
            speed = f"runs at {self.share_of_expected:.0%} of the predicted speed"
        if self.normal:
            return f"Normal: it {speed or 'loses nothing that its reports show'}."
        if not self.causes:
            return f"Slow: it {speed}, and its reports show no cause."
        clauses = "; ".join(cause.clause for cause in self.causes)
        below = self.share_of_expected is not None and self.share_of_expected < 1
        return f"Slow: {f'it {speed}; ' if below else ''}{clauses}."


def judge(windows: Sequence[RankWindow], expected: Expectation | None = None) -> Verdict | None:
    """Judge the newest windows of all ranks; return None without any after the warm-up."""
    steady = [window for window in windows if not window.warmup]
    if not steady:
        return None
    ranks = summarize_ranks(steady)
    step = median(rank.step for rank in ranks)
    causes = _find_causes(ranks, step, expected, steady)
    share, slow = None, False
    if expected is not None:
        middle = (expected.low_seconds + expected.high_seconds) / 2
        share, slow = middle / step, step > expected.high_seconds
    normal = not causes and not slow
    return Verdict(step, normal, share, tuple(causes), find_drift(steady), ranks)


def summarize_ranks(windows: Sequence[RankWindow]) -> tuple[RankTimes, ...]:
    """Average the newest windows of each rank, weighted by their steps."""
    by_rank: dict[int, list[RankWindow]] = {}
    for window in windows:
        by_rank.setdefault(window.rank, []).append(window)
    times = []
    for rank, own in sorted(by_rank.items()):
        recent = own[-_RECENT:]
        exchanges = [w for w in recent if w.exchange_seconds is not None]
        times.append(
            RankTimes(
                rank,
                recent[-1].host,
                recent[-1].gpu,
                median(w.step_seconds for w in recent),
                median(w.compute_seconds for w in recent),
                median(w.input_seconds or 0.0 for w in recent),
                median(w.exchange_seconds or 0.0 for w in exchanges) if exchanges else None,
                fmean(w.cpu_wait for w in recent),
            )
        )
    return tuple(times)


def _find_causes(
    ranks: Sequence[RankTimes],
    step: float,
    expected: Expectation | None,
    windows: Sequence[RankWindow],
) -> list[Cause]:
    causes = [*_judge_input(ranks, step), *_judge_ranks(ranks, step, expected)]
    if expected is not None:
        causes += _judge_link(ranks, step, expected)
        causes += _judge_batch(windows, expected)
        named = any(cause.name in ("slow rank", "throttled clock", "other job") for cause in causes)
        if not named and not any(cause.name == "wrong batch" for cause in causes):
            causes += _judge_compute(ranks, step, expected)
    return sorted(causes, key=lambda cause: -cause.cost)


def _judge_input(ranks: Sequence[RankTimes], step: float) -> list[Cause]:
    worst = max(ranks, key=lambda rank: rank.input)
    cost = worst.input / step
    if cost < _MIN_COST:
        return []
    others = [rank.input for rank in ranks if rank is not worst]
    alone = bool(others) and median(others) < worst.input / 2
    who = f"{worst.name} waits" if alone else "every rank waits" if len(ranks) > 1 else "it waits"
    clause = f"{who} {format_seconds(worst.input)} per step for its input, {cost:.0%} of the step"
    return [Cause("input starved", cost, clause, worst.rank if alone else None)]


def _judge_ranks(
    ranks: Sequence[RankTimes], step: float, expected: Expectation | None
) -> list[Cause]:
    """Name ranks that compute longer than the others; a rank alone has nothing to be compared with."""
    if len(ranks) < 2 or any(rank.exchange is None for rank in ranks):
        return []
    causes = []
    for rank in ranks:
        rest = [other for other in ranks if other is not rank]
        others = median(other.compute for other in rest)
        cost = (rank.compute - others) / step
        if cost < _MIN_COST:
            continue
        name: CauseName = "slow rank"
        why = ""
        own_excess = rank.own_compute - median(other.own_compute for other in rest)
        if expected is not None and rank.rank in expected.throttled_ranks:
            name, why = "throttled clock", "; its GPU reports a reduced clock"
        elif own_excess < (rank.compute - others) / 2:
            # most of the difference is waiting for a CPU, which also varies on a machine that is busy everywhere
            calm = median(other.cpu_wait for other in rest)
            if calm > _BUSY_CPU and (rank.cpu_wait < _CROWDED_RATIO * calm or cost < _CROWDED_COST):
                continue
            name, why = "other job", "; another process on its machine has the CPU meanwhile"
        clause = (
            f"{rank.name} computes {rank.compute / others - 1:.0%} longer than the others, "
            f"which costs {cost:.0%} of each step{why}"
        )
        causes.append(Cause(name, cost, clause, rank.rank))
    return causes


def _judge_link(ranks: Sequence[RankTimes], step: float, expected: Expectation) -> list[Cause]:
    exchanges = [rank.exchange for rank in ranks if rank.exchange is not None]
    if not exchanges or expected.exchange_seconds is None or len(ranks) < 2:
        return []
    shortest = min(exchanges)
    cost = (shortest - expected.exchange_seconds) / step
    busy = median(rank.cpu_wait for rank in ranks)  # a busy CPU also delays the exchange
    tolerance = _LINK_TOLERANCE + _BUSY_TOLERANCE * busy
    if shortest < tolerance * expected.exchange_seconds or cost < _MIN_COST:
        return []
    ratio = shortest / expected.exchange_seconds if expected.exchange_seconds else float("inf")
    times = (
        f"{ratio:.1f} times as long as predicted" if ratio < 100 else "far longer than predicted"
    )
    clause = f"the exchange takes {times}, {cost:.0%} of each step: a link is slow"
    return [Cause("slow link", cost, clause)]


def _judge_batch(windows: Sequence[RankWindow], expected: Expectation) -> list[Cause]:
    last = next((window for window in reversed(windows) if window.samples), None)
    if last is None or not expected.samples_per_step:
        return []
    own = last.samples / last.steps
    ratio = own / expected.samples_per_step
    if abs(ratio - 1) < _SAMPLES_TOLERANCE:
        return []
    clause = f"a step has {own:,.0f} samples, not the described {expected.samples_per_step:,.0f}"
    return [Cause("wrong batch", abs(1 - ratio), clause)]


def _judge_compute(ranks: Sequence[RankTimes], step: float, expected: Expectation) -> list[Cause]:
    """Explain computation that is slow on all ranks."""
    if not expected.compute_seconds:
        return []
    compute = median(rank.compute for rank in ranks)
    ratio, cost = compute / expected.compute_seconds, (compute - expected.compute_seconds) / step
    if ratio < _COMPUTE_TOLERANCE or cost < _MIN_COST or step <= expected.high_seconds:
        return []
    slower = f"every rank computes {ratio - 1:.0%} longer than predicted"
    if median(rank.cpu_wait for rank in ranks) > _BUSY_CPU:
        return [Cause("other job", cost, f"{slower}; other processes have the CPUs meanwhile")]
    if expected.throttled_ranks:
        return [Cause("throttled clock", cost, f"{slower}; GPUs report reduced clocks")]
    if ratio >= _PRECISION_RATIO:
        return [Cause("precision", cost, f"{slower}; is its precision as described?")]
    return [Cause("throttled clock", cost, f"{slower}; check the clocks and power of its GPUs")]


def find_drift(windows: Sequence[RankWindow]) -> Drift | None:
    """Find the moment after which steps are lastingly slower, from the lowest rank that reports."""
    lowest = min(window.rank for window in windows)
    own = [window for window in windows if window.rank == lowest]
    if len(own) < 2 * _MIN_SIDE:
        return None
    steps = [window.step_seconds for window in own]

    def deviation(values: Sequence[float]) -> float:
        center = median(values)
        return sum(abs(value - center) for value in values)

    split = min(
        range(_MIN_SIDE, len(steps) - _MIN_SIDE + 1),
        key=lambda index: deviation(steps[:index]) + deviation(steps[index:]),
    )
    before, after = median(steps[:split]), median(steps[split:])
    noise = median(
        [abs(s - before) for s in steps[:split]] + [abs(s - after) for s in steps[split:]]
    )
    slowdown = after / before - 1
    if slowdown < _MIN_DRIFT or after - before < _DRIFT_NOISE * noise:
        return None
    return Drift(own[split].at, slowdown, own[split - 1].at - own[0].at)
