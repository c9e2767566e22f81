"""Judge a running training: numbers of its ranks in, a verdict out.

A synchronous step ends when the slowest rank has finished, so a rank that computes longer lets all others wait in the
exchange. The shortest exchange of all ranks is therefore communication; the rest of the others' exchange is waiting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from gpuyard.jobs.drift import Drift, find_drift
from gpuyard.jobs.rank_times import (
    RECENT,
    RankTimes,
    describe_clock,
    median_of_known,
    summarize_ranks,
)
from gpuyard.jobs.silence import Silence, find_silence
from gpuyard.jobs.slow_link import find_slow_link, measure_links
from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_bit_rate, format_seconds

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
_CROWDED_CPU = 0.25  # the same of all ranks, which slows the training without a rank standing out
_CROWDED_ODDS, _CROWDED_COST = 2.0, 0.15  # a rank stands out on a machine where all wait for CPUs
_STEADY_SHARE = 0.75  # of the windows in which a slow rank must be slower; noise changes sides
_BUSY_LOAD, _LOAD_RATIO = 1.5, 2.0  # per core, and relative to the machines of other ranks
_SAMPLES_TOLERANCE = 0.02


@dataclass(frozen=True)
class Expectation:
    """The predicted step; None where the prediction says nothing."""

    low_seconds: float
    high_seconds: float
    compute_seconds: float | None = None
    exchange_seconds: float | None = None  # the whole exchange: a loop may hide none of it
    samples_per_step: float | None = None


@dataclass(frozen=True)
class Cause:
    """A likely cause, what it costs as a share of each step, and a clause that names it."""

    name: CauseName
    cost: float
    clause: str
    rank: int | None = None
    hosts: tuple[str, ...] = ()  # of a slow link


@dataclass(frozen=True)
class Verdict:
    """The judgment: normal or not, causes with the most expensive first, and drift."""

    step_seconds: float
    normal: bool
    share_of_expected: float | None  # speed relative to the slow end of the prediction's middle
    causes: tuple[Cause, ...]
    drift: Drift | None
    ranks: tuple[RankTimes, ...]
    silence: Silence | None = None

    @property
    def lost_share(self) -> float:
        """The lost share of the time: the gap to the prediction or the most expensive cause; 0 if normal."""
        if self.normal:
            return 0.0
        if self.stuck:
            return 1.0
        gap = 0.0 if self.share_of_expected is None else 1 - self.share_of_expected
        drift = 0.0 if self.drift is None else self.drift.lost_share
        costs = [cause.cost for cause in self.causes if cause.name != "wrong batch"]
        return max(0.0, gap, drift, *costs)

    @property
    def stuck(self) -> bool:
        """True if all ranks have stopped reporting."""
        return self.silence is not None and self.silence.everyone

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, without a silence of some ranks."""
        if self.stuck and self.silence is not None:
            return self.silence.sentence
        speed = ""
        if self.share_of_expected is not None:
            speed = f"runs at {self.share_of_expected:.0%} of the predicted speed"
        if self.normal:
            return f"Normal: it {speed or 'loses nothing that its reports show'}."
        if not self.causes and self.drift is None:
            return f"Slow: it {speed}, and its reports show no cause."
        clauses = [] if self.drift is None else [self.drift.clause]
        if self.share_of_expected is not None and self.share_of_expected < 1:
            clauses.append(f"it {speed}")
        clauses += [cause.clause for cause in self.causes]
        return f"Slow: {'; '.join(clauses)}."


def judge(
    windows: Sequence[RankWindow], expected: Expectation | None = None, now: float | None = None
) -> Verdict | None:
    """Judge the newest windows of all ranks; return None without any after the warm-up.

    `now` is the time if the training still runs; it is stuck if all its reports are old then.
    """
    steady = _drop_former_ranks([window for window in windows if not window.warmup])
    if not steady:
        return None
    silence = find_silence(_drop_former_ranks(windows), now)
    silent = () if silence is None or silence.everyone else silence.ranks
    steady = [window for window in steady if window.rank not in silent]
    ranks = summarize_ranks(steady)
    step = median(rank.step for rank in ranks)
    causes = _find_causes(ranks, step, expected, steady)
    share, slow = None, False
    if expected is not None:
        middle = (expected.low_seconds + expected.high_seconds) / 2
        share, slow = middle / step, step > expected.high_seconds
    drift = find_drift(steady)
    stuck = silence is not None and silence.everyone
    normal = not (causes or slow or stuck or drift is not None)
    return Verdict(step, normal, share, tuple(causes), drift, ranks, silence)


def _drop_former_ranks(windows: Sequence[RankWindow]) -> list[RankWindow]:
    """Leave out ranks that a restart on fewer workers no longer has."""
    workers = next((w.workers for w in reversed(windows) if w.rank == 0 and w.workers > 1), None)
    return [window for window in windows if workers is None or window.rank < workers]


def _find_causes(
    ranks: Sequence[RankTimes],
    step: float,
    expected: Expectation | None,
    windows: Sequence[RankWindow],
) -> list[Cause]:
    causes = [*_judge_input(ranks, step), *_judge_ranks(ranks, step, windows)]
    causes += _judge_clocks(ranks, step, {cause.rank for cause in causes})
    causes += _judge_link(ranks, step, expected, windows)
    if expected is None or step > expected.high_seconds:
        causes += _judge_crowd(ranks, step, causes)
    if expected is not None:
        causes += _judge_batch(windows, expected)
        named = [c for c in causes if c.name in ("slow rank", "throttled clock", "other job")]
        # fewer than half of the ranks leave the median as it is
        explained = 2 * len(named) >= len(ranks) or any(cause.rank is None for cause in named)
        if not explained and not any(cause.name == "wrong batch" for cause in causes):
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
    ranks: Sequence[RankTimes], step: float, windows: Sequence[RankWindow]
) -> list[Cause]:
    """Name ranks that compute longer than the others; a rank alone has nothing to be compared with."""
    if len(ranks) < 2:
        return []
    if any(rank.exchange is None for rank in ranks):
        return _judge_waits(ranks, step, windows)
    causes = []
    times = _group_by_rank(windows, lambda window: window.compute_seconds)
    for rank in _select_slow([(rank, rank.compute) for rank in ranks], _MIN_COST * step):
        rest = [other for other in ranks if other is not rank]
        others = median(other.compute for other in rest)
        cost = (rank.compute - others) / step
        crowded = median(other.cpu_wait for other in rest) > _BUSY_CPU
        if cost < (_CROWDED_COST if crowded else _MIN_COST):
            continue
        if not _is_steadily_slow(rank.rank, times, _MIN_COST / 2 * step):
            continue
        name: CauseName = "slow rank"
        own_excess = rank.own_compute - median(other.own_compute for other in rest)
        waits = own_excess < (rank.compute - others) / 2
        why = describe_clock(rank, rest)
        if why:
            name = "throttled clock"
        elif rank.shares_gpu:
            name, why = "other job", "another process uses its GPU"
        elif waits or _has_high_load(rank, rest):
            # waiting for a CPU also varies between ranks on a machine that is busy everywhere
            calm = median(other.wait_odds for other in rest)
            if crowded and waits and rank.wait_odds < _CROWDED_ODDS * calm:
                continue
            name, why = "other job", "another process on its machine has the CPU meanwhile"
        clause = (
            f"{rank.name} computes {rank.compute / others - 1:.0%} longer than the others, "
            f"which costs {cost:.0%} of each step{f'; {why}' if why else ''}"
        )
        causes.append(Cause(name, cost, clause, rank.rank))
    return causes


def _judge_waits(
    ranks: Sequence[RankTimes], step: float, windows: Sequence[RankWindow]
) -> list[Cause]:
    """Name ranks that wait longer for a CPU than the others; the rest of their steps contains untimed exchange."""
    causes = []
    waits = _group_by_rank(windows, lambda window: window.cpu_wait * window.step_seconds)
    for rank in _select_slow([(rank, rank.wait) for rank in ranks], _MIN_COST * step):
        others = median(other.wait for other in ranks if other is not rank)
        cost = (rank.wait - others) / step
        if cost < (_CROWDED_COST if others > _BUSY_CPU * step else _MIN_COST):
            continue
        if not _is_steadily_slow(rank.rank, waits, _MIN_COST / 2 * step):
            continue
        clause = (
            f"{rank.name} waits {format_seconds(rank.wait)} per step for a CPU that other "
            f"processes have, which costs up to {cost:.0%} of each step"
        )
        causes.append(Cause("other job", cost, clause, rank.rank))
    return causes


def _judge_crowd(ranks: Sequence[RankTimes], step: float, causes: Sequence[Cause]) -> list[Cause]:
    """Say that all ranks wait for CPUs, unless a rank stands out."""
    cost = median(rank.wait for rank in ranks) / step
    if cost < _CROWDED_CPU or any(cause.name == "other job" for cause in causes):
        return []
    who = "every rank waits" if len(ranks) > 1 else "it waits"
    clause = (
        f"{who} for a CPU up to {cost:.0%} of each step: other processes, or too many threads, "
        "use the same CPUs"
    )
    return [Cause("other job", cost, clause)]


def _select_slow(times: Sequence[tuple[RankTimes, float]], margin: float) -> list[RankTimes]:
    """Return the few ranks that may be slower than the median of the others by this margin."""
    ordered = sorted(seconds for _, seconds in times)
    lowest_median = ordered[max(0, (len(ordered) - 1) // 2 - 1)]
    return [rank for rank, seconds in times if seconds - lowest_median >= margin]


def _group_by_rank(
    windows: Sequence[RankWindow], measure: Callable[[RankWindow], float]
) -> dict[int, list[float]]:
    """Return this figure of the newest windows of each rank."""
    by_rank: dict[int, list[float]] = {}
    for window in windows:
        by_rank.setdefault(window.rank, []).append(measure(window))
    return {rank: times[-RECENT:] for rank, times in by_rank.items()}


def _is_steadily_slow(rank: int, by_rank: Mapping[int, Sequence[float]], margin: float) -> bool:
    """Return whether a rank takes longer than the others in most of the newest windows."""
    own = by_rank[rank]
    slower = []
    for back in range(1, len(own) + 1):
        others = [
            times[-back] for other, times in by_rank.items() if other != rank and len(times) >= back
        ]
        if others:
            slower.append(own[-back] - median(others) > margin)
    return bool(slower) and sum(slower) >= _STEADY_SHARE * len(slower)


def _has_high_load(rank: RankTimes, rest: Sequence[RankTimes]) -> bool:
    others = median_of_known([other.load_per_core for other in rest])
    load = rank.load_per_core
    if load is None or others is None:
        return False
    return load > _BUSY_LOAD and load > _LOAD_RATIO * others


def _judge_clocks(ranks: Sequence[RankTimes], step: float, named: set[int | None]) -> list[Cause]:
    """Name GPUs with a reduced clock whose ranks are not compared, by what the clock alone costs."""
    causes = []
    for rank in ranks:
        rest = [other for other in ranks if other is not rank]
        why = describe_clock(rank, rest)
        best = median_of_known([other.clock_mhz for other in rest]) or rank.max_clock_mhz
        if rank.rank in named or not why or not best or rank.clock_mhz is None:
            continue
        cost = (1 - rank.clock_mhz / best) * rank.compute / step
        if cost >= _MIN_COST:
            clause = f"{rank.name} is slow: {why}, which costs up to {cost:.0%} of each step"
            causes.append(Cause("throttled clock", cost, clause, rank.rank))
    return causes


def _judge_link(
    ranks: Sequence[RankTimes],
    step: float,
    expected: Expectation | None,
    windows: Sequence[RankWindow],
) -> list[Cause]:
    """Name a link that is slower than the others, or say that the exchange takes longer than predicted."""
    exchanges = [rank.exchange for rank in ranks if rank.exchange is not None]
    if not exchanges or len(ranks) < 2:
        return []
    shortest = min(exchanges)
    slow = find_slow_link(windows, RECENT)
    if slow is not None and (cost := (1 - slow.ratio) * shortest / step) >= _MIN_COST:
        clause = f"{slow.clause}, which costs {cost:.0%} of each step"
        return [Cause("slow link", cost, clause, hosts=slow.hosts)]
    if expected is None or expected.exchange_seconds is None or step <= expected.high_seconds:
        return []
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
    links = measure_links(windows, RECENT)
    if links:
        slowest = min(links, key=lambda link: link.bytes_per_second)
        rate = format_bit_rate(slowest.bytes_per_second)
        clause += f"; that from {slowest.sender} to {slowest.receiver} carries {rate}"
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
    name, why = _explain_compute(ranks, ratio)
    return [Cause(name, cost, f"every rank computes {ratio - 1:.0%} longer than predicted; {why}")]


def _explain_compute(ranks: Sequence[RankTimes], ratio: float) -> tuple[CauseName, str]:
    if median(rank.cpu_wait for rank in ranks) > _BUSY_CPU:
        return "other job", "other processes have the CPUs meanwhile"
    if any(rank.shares_gpu for rank in ranks):
        return "other job", "other processes use its GPUs meanwhile"
    reduced = [rank for rank in ranks if rank.clock_reasons]
    if 2 * len(reduced) > len(ranks):
        reasons = ", ".join(dict.fromkeys(r for rank in reduced for r in rank.clock_reasons))
        return "throttled clock", f"its GPUs report: {reasons}"
    if ratio >= _PRECISION_RATIO:
        return "precision", "check that its precision is as described"
    return "throttled clock", "check the clocks and power of its GPUs"
