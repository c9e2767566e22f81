"""Rows on one kind of hardware through the predictor's own step, with constants that a fit can move; and the fit: least
squares with bounds, measured over predicted, and every constant drawn back to its default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict.calibration.defaults import (
    Free,
    FreeLine,
    default_overlap,
    default_platform,
    default_variation,
    free_constants,
    free_line,
)
from gpuyard.predict.calibration.rows import Hardware, LineKey, LinkRates, TrainingRow
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies import STRATEGIES
from gpuyard.predict.strategies.ddp import all_reduce
from gpuyard.predict.table import Configurations, Floats, Placement, StepTable, step_parts

Lines = Mapping[LineKey, tuple[float, float]]
_NO_LINE = ComputeLine(1.0, 1.0, "measured here", "filled in by the fit")


@dataclass(frozen=True)
class RowBlock:
    """Rows of one workload and strategy, as the table that the step model reckons with."""

    key: LineKey
    rows: tuple[TrainingRow, ...]
    table: StepTable

    def tabled(
        self, values: Mapping[str, float], fixed_seconds: float, seconds_per_sample: float
    ) -> StepTable:
        """With a line and those of `free_constants`; what is not there keeps its default."""
        table, traffic = self.table, self.table.traffic
        hides = traffic.strategy.calibrated

        def column(name: str, default: Floats) -> Floats:
            return np.full(len(self.rows), values[name]) if name in values else default

        return replace(
            table,
            fixed_seconds=np.full(len(self.rows), fixed_seconds),
            seconds_per_sample=np.full(len(self.rows), seconds_per_sample),
            inside_bytes_per_second=column("link_inside", table.inside_bytes_per_second),
            inside_latency_seconds=column("hop_latency", table.inside_latency_seconds),
            traffic=replace(
                traffic,
                launch_seconds=values.get("collective_launch", traffic.launch_seconds),
                backward_share=values.get("backward_share", traffic.backward_share),
                variation=values.get("step_variation", traffic.variation),
                overlap=values.get("overlap", traffic.overlap) if hides else traffic.overlap,
            ),
        )


@dataclass(frozen=True)
class Times:
    """Seconds of every row, in the order of the blocks."""

    step: Floats
    busy: Floats  # without exchange, of the slowest worker
    all_reduce: Floats


def compiled(hardware: Hardware, rows: Sequence[TrainingRow]) -> tuple[RowBlock, ...]:
    platform = default_platform(hardware)
    grouped: dict[tuple[LineKey, str], list[TrainingRow]] = {}
    for row in rows:
        grouped.setdefault((row.key, row.strategy), []).append(row)
    blocks = []
    for (key, _), members in grouped.items():
        first, strategy = members[0], STRATEGIES[members[0].strategy]
        scenario = PlatformScenario(
            first.workload,
            first.profile,
            # input is part of a measured step, as it is of a line that is fitted to it
            replace(platform, host_to_gpu_bytes_per_second=None, storage_bytes_per_second=None),
            _NO_LINE,
            strategy,
            overlap=default_overlap(hardware) if strategy.calibrated else None,
            variation=default_variation(hardware),
        )
        spots = [(Placement(row.workers, 1, row.workers), row.batch_per_worker) for row in members]
        blocks.append(RowBlock(key, tuple(members), scenario.table(Configurations.of(spots))))
    return tuple(blocks)


def times(blocks: Sequence[RowBlock], constants: Mapping[str, float], lines: Lines) -> Times:
    """What the step model says of every row."""
    step, busy, bare = [], [], []
    for block in blocks:
        table = block.tabled(constants, *lines[block.key])
        parts = step_parts(table)
        step.append(parts.step_seconds)
        busy.append(parts.compute_seconds + parts.straggler_seconds)
        size = np.asarray(table.traffic.buckets.total_bytes)
        bare.append(all_reduce(table, table.traffic.launch_seconds)(size))
    return Times(np.concatenate(step), np.concatenate(busy), np.concatenate(bare))


# what the formulas leave out; no run counts as known better than this
MODEL_ERROR = 0.05
_ALL_REDUCE_ERROR = 0.1  # a median of few
# a constant is measured where the runs leave less than this of the doubt about its default
MOST_DOUBT = 0.5
_PRECISE = 1e-4  # of a prior σ: far below what runs differ by
_MOST_STEPS = 40


@dataclass(frozen=True)
class FittedConstant:
    """`doubt` is its σ after the fit over its σ before: 1 where the runs said nothing."""

    free: Free
    value: float
    doubt: float


@dataclass(frozen=True)
class FittedLine:
    """A workload's compute, fixed + b · per_sample, by so many runs at so many batch sizes."""

    key: LineKey
    fixed_seconds: float
    seconds_per_sample: float
    fixed_measured: bool  # else the fixed part is the default's share of the step


@dataclass(frozen=True)
class Fit:
    """Only what the runs identify; every other constant keeps its default."""

    constants: tuple[FittedConstant, ...]
    lines: tuple[FittedLine, ...]

    @property
    def values(self) -> dict[str, float]:
        return {constant.free.name: constant.value for constant in self.constants}

    @property
    def by_key(self) -> dict[LineKey, tuple[float, float]]:
        return {line.key: (line.fixed_seconds, line.seconds_per_sample) for line in self.lines}


@dataclass(frozen=True)
class _Problem:
    """The constants that are sought, then two of every line: its time, and maybe its fixed share."""

    blocks: tuple[RowBlock, ...]
    constants: tuple[Free, ...]
    lines: tuple[FreeLine, ...]
    free_shares: frozenset[LineKey]

    @property
    def sought(self) -> list[Free]:
        of_lines = [line.seconds for line in self.lines]
        shares = [line.fixed_share for line in self.lines if line.key in self.free_shares]
        return [*self.constants, *of_lines, *shares]

    def read(self, u: Floats) -> tuple[dict[str, float], dict[LineKey, tuple[float, float]]]:
        found = [free.value(float(x)) for free, x in zip(self.sought, u, strict=True)]
        count = len(self.constants)
        values = dict(zip((free.name for free in self.constants), found, strict=False))
        shares = iter(found[count + len(self.lines) :])
        lines = {
            line.key: line.line(
                seconds,
                next(shares) if line.key in self.free_shares else line.fixed_share.default,
            )
            for line, seconds in zip(self.lines, found[count:], strict=False)
        }
        return values, lines

    def residuals(self, u: Floats) -> Floats:
        made = times(self.blocks, *self.read(u))
        rows = [row for block in self.blocks for row in block.rows]
        noise = np.hypot([row.noise for row in rows], MODEL_ERROR)
        several = np.array([row.workers > 1 for row in rows])
        bare = np.array([row.all_reduce_seconds or 0.0 for row in rows])
        timed = several & (bare > 0)
        step = np.log(made.step / [row.step_seconds for row in rows]) / noise
        # with one worker the step is all compute, and would count twice
        known = several & np.array([row.busy_seconds is not None for row in rows])
        alone = np.array([row.busy_seconds or row.step_seconds for row in rows])
        busy = (np.log(made.busy / alone) / noise)[known]
        exchanged = np.log(made.all_reduce[timed] / bare[timed]) / _ALL_REDUCE_ERROR
        return np.concatenate([_soft(step), _soft(busy), _soft(exchanged), u])


def fit(hardware: Hardware, rows: Sequence[TrainingRow], links: LinkRates | None = None) -> Fit:
    """Fit all that could be measured, then give up, one after the other, what the runs leave in doubt."""
    blocks = compiled(hardware, rows)
    by_key: dict[LineKey, list[TrainingRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    lines = tuple(free_line(hardware, members) for members in by_key.values())
    several_batches = frozenset(
        key for key, members in by_key.items() if len({m.batch_per_worker for m in members}) > 1
    )
    exchanging = any(row.workers > 1 for row in rows)
    constants = free_constants(hardware, links) if exchanging else ()
    problem = _Problem(blocks, constants, lines, several_batches)
    u, doubts = _solve(problem, np.zeros(len(problem.sought)))
    while (weakest := _weakest(problem, doubts)) is not None:
        problem = _without(problem, weakest)
        u, doubts = _solve(problem, np.delete(u, weakest))
    values, found = problem.read(u)
    fitted = tuple(
        FittedConstant(free, values[free.name], float(doubt))
        for free, doubt in zip(problem.constants, doubts, strict=False)
    )
    return Fit(
        fitted,
        tuple(FittedLine(key, *found[key], key in problem.free_shares) for key in by_key),
    )


def _solve(problem: _Problem, start: Floats) -> tuple[Floats, Floats]:
    """Where the squares are least, and how much of each prior σ is left there."""
    from scipy.optimize import least_squares

    low, high = np.transpose([free.bounds for free in problem.sought])
    # a default may lie on a bound (nothing hides with gloo), where an interior method gets stuck
    margin = 0.05 * (high - low)
    found = least_squares(
        problem.residuals,
        np.clip(start, low + margin, high - margin),
        bounds=(low, high),
        ftol=_PRECISE,
        xtol=_PRECISE,
        max_nfev=_MOST_STEPS,
    )
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return found.x, np.sqrt(np.diag(covariance))


def _weakest(problem: _Problem, doubts: Floats) -> int | None:
    """The constant or fixed share that the runs say least about; a line's time is always kept."""
    count, lines = len(problem.constants), len(problem.lines)
    candidates = [i for i in range(len(doubts)) if i < count or i >= count + lines]
    doubtful = [i for i in candidates if doubts[i] > MOST_DOUBT]
    return max(doubtful, key=lambda i: doubts[i], default=None)


def _without(problem: _Problem, index: int) -> _Problem:
    count = len(problem.constants)
    if index < count:
        left = problem.constants[:index] + problem.constants[index + 1 :]
        return _Problem(problem.blocks, left, problem.lines, problem.free_shares)
    ordered = [line.key for line in problem.lines if line.key in problem.free_shares]
    given_up = ordered[index - count - len(problem.lines)]
    return _Problem(
        problem.blocks, problem.constants, problem.lines, problem.free_shares - {given_up}
    )


def _soft(errors: Floats) -> Floats:
    """Residuals whose squares grow like soft-L1: one bad run must not bend a constant."""
    return errors * np.sqrt(2 / (1 + np.sqrt(1 + errors**2)))
