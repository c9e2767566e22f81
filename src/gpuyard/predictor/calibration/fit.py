"""Fit constants to the training rows of one kind of hardware through the predictor's own step model.

The fit uses bounded least squares on the ratio of measured to predicted times, with a prior around every default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predictor.calibration.defaults import (
    FreeConstant,
    FreeLine,
    default_overlap,
    default_platform,
    default_variation,
    free_constants,
    free_line,
)
from gpuyard.predictor.calibration.rows import Hardware, LineKey, LinkRates, TrainingRow
from gpuyard.predictor.compute import ComputeLine
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.strategies import STRATEGIES
from gpuyard.predictor.strategies.ddp import all_reduce
from gpuyard.predictor.table import Configurations, Floats, StepTable, compute_step_parts

Lines = Mapping[LineKey, tuple[float, float]]
_NO_LINE = ComputeLine(1.0, 1.0, "measured here", "filled in by the fit")


@dataclass(frozen=True)
class RowBlock:
    """Rows of one workload and strategy with the table of the step model."""

    key: LineKey
    rows: tuple[TrainingRow, ...]
    table: StepTable

    def apply_values(
        self, values: Mapping[str, float], fixed_seconds: float, seconds_per_sample: float
    ) -> StepTable:
        """Return the table with a compute line and values of free constants; others keep their defaults."""
        table, traffic = self.table, self.table.traffic
        uses_overlap = traffic.strategy.calibrated

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
                overlap=values.get("overlap", traffic.overlap) if uses_overlap else traffic.overlap,
            ),
        )


@dataclass(frozen=True)
class RowTimes:
    """Seconds of every row, in the order of the blocks."""

    step: Floats
    busy: Floats  # the slowest worker without exchange
    all_reduce: Floats


def compile_blocks(hardware: Hardware, rows: Sequence[TrainingRow]) -> tuple[RowBlock, ...]:
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
            # a measured step, and so the line fitted to it, includes input
            replace(platform, host_to_gpu_bytes_per_second=None, storage_bytes_per_second=None),
            _NO_LINE,
            strategy,
            overlap=default_overlap(hardware) if strategy.calibrated else None,
            variation=default_variation(hardware),
        )
        pairs = [(Placement(row.workers, 1, row.workers), row.batch_per_worker) for row in members]
        blocks.append(
            RowBlock(key, tuple(members), scenario.build_table(Configurations.from_pairs(pairs)))
        )
    return tuple(blocks)


def predict_times(
    blocks: Sequence[RowBlock], constants: Mapping[str, float], lines: Lines
) -> RowTimes:
    """Predict every row with the step model."""
    step, busy, all_reduces = [], [], []
    for block in blocks:
        table = block.apply_values(constants, *lines[block.key])
        parts = compute_step_parts(table)
        step.append(parts.step_seconds)
        busy.append(parts.compute_seconds + parts.straggler_seconds)
        size = np.asarray(table.traffic.buckets.total_bytes)
        all_reduces.append(all_reduce(table, table.traffic.launch_seconds)(size))
    return RowTimes(np.concatenate(step), np.concatenate(busy), np.concatenate(all_reduces))


# the error of the formulas; no run counts as more precise than this
MODEL_ERROR = 0.05
_ALL_REDUCE_ERROR = 0.1  # the median of few measurements
# a constant counts as measured if the runs reduce its prior σ below this share
MAX_DOUBT = 0.5
_TOLERANCE = 1e-4  # share of a prior σ, far below the differences between runs
_MAX_EVALUATIONS = 40


@dataclass(frozen=True)
class FittedConstant:
    """A fitted constant. `doubt` is its σ after the fit over its prior σ: 1 if the runs don't determine it."""

    free: FreeConstant
    value: float
    doubt: float


@dataclass(frozen=True)
class FittedLine:
    """A workload's fitted compute line, fixed + b · per_sample."""

    key: LineKey
    fixed_seconds: float
    seconds_per_sample: float
    fixed_measured: bool  # False: the fixed part is the default share of the step


@dataclass(frozen=True)
class Fit:
    """The constants and lines that the runs determine; all others keep their defaults."""

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
    """A least-squares problem: the free constants, then the time and possibly the fixed share of every line."""

    blocks: tuple[RowBlock, ...]
    constants: tuple[FreeConstant, ...]
    lines: tuple[FreeLine, ...]
    free_shares: frozenset[LineKey]

    @property
    def unknowns(self) -> list[FreeConstant]:
        line_times = [line.seconds for line in self.lines]
        shares = [line.fixed_share for line in self.lines if line.key in self.free_shares]
        return [*self.constants, *line_times, *shares]

    def decode(self, u: Floats) -> tuple[dict[str, float], dict[LineKey, tuple[float, float]]]:
        numbers = [free.value(float(x)) for free, x in zip(self.unknowns, u, strict=True)]
        count = len(self.constants)
        values = dict(zip((free.name for free in self.constants), numbers, strict=False))
        shares = iter(numbers[count + len(self.lines) :])
        lines = {
            line.key: line.line(
                seconds,
                next(shares) if line.key in self.free_shares else line.fixed_share.default,
            )
            for line, seconds in zip(self.lines, numbers[count:], strict=False)
        }
        return values, lines

    def residuals(self, u: Floats) -> Floats:
        predicted = predict_times(self.blocks, *self.decode(u))
        rows = [row for block in self.blocks for row in block.rows]
        noise = np.hypot([row.noise for row in rows], MODEL_ERROR)
        several = np.array([row.workers > 1 for row in rows])
        all_reduce_seconds = np.array([row.all_reduce_seconds or 0.0 for row in rows])
        timed = several & (all_reduce_seconds > 0)
        step = np.log(predicted.step / [row.step_seconds for row in rows]) / noise
        # with one worker the step is all compute, and would count twice
        has_busy = several & np.array([row.busy_seconds is not None for row in rows])
        busy_seconds = np.array([row.busy_seconds or row.step_seconds for row in rows])
        busy = (np.log(predicted.busy / busy_seconds) / noise)[has_busy]
        exchanged = (
            np.log(predicted.all_reduce[timed] / all_reduce_seconds[timed]) / _ALL_REDUCE_ERROR
        )
        return np.concatenate([_soften(step), _soften(busy), _soften(exchanged), u])


def fit(hardware: Hardware, rows: Sequence[TrainingRow], links: LinkRates | None = None) -> Fit:
    """Fit all free constants, then drop, one at a time, those that the runs don't determine."""
    blocks = compile_blocks(hardware, rows)
    by_key: dict[LineKey, list[TrainingRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    lines = tuple(free_line(hardware, members) for members in by_key.values())
    several_batches = frozenset(
        key for key, members in by_key.items() if len({m.batch_per_worker for m in members}) > 1
    )
    change_exchange = any(row.workers > 1 for row in rows)
    constants = free_constants(hardware, links) if change_exchange else ()
    problem = _Problem(blocks, constants, lines, several_batches)
    u, doubts = _solve(problem, np.zeros(len(problem.unknowns)))
    while (weakest := _find_weakest(problem, doubts)) is not None:
        problem = _drop_unknown(problem, weakest)
        u, doubts = _solve(problem, np.delete(u, weakest))
    values, line_values = problem.decode(u)
    constants_fitted = tuple(
        FittedConstant(free, values[free.name], float(doubt))
        for free, doubt in zip(problem.constants, doubts, strict=False)
    )
    return Fit(
        constants_fitted,
        tuple(FittedLine(key, *line_values[key], key in problem.free_shares) for key in by_key),
    )


def _solve(problem: _Problem, start: Floats) -> tuple[Floats, Floats]:
    """Return the solution and the remaining share of each prior σ."""
    from scipy.optimize import least_squares

    low, high = np.transpose([free.bounds for free in problem.unknowns])
    # a default may lie on a bound (gloo hides nothing), where an interior method gets stuck
    margin = 0.05 * (high - low)
    solution = least_squares(
        problem.residuals,
        np.clip(start, low + margin, high - margin),
        bounds=(low, high),
        ftol=_TOLERANCE,
        xtol=_TOLERANCE,
        max_nfev=_MAX_EVALUATIONS,
    )
    covariance = np.linalg.inv(solution.jac.T @ solution.jac)
    return solution.x, np.sqrt(np.diag(covariance))


def _find_weakest(problem: _Problem, doubts: Floats) -> int | None:
    """Return the index of the least determined constant or fixed share; a line's time is always kept."""
    count, lines = len(problem.constants), len(problem.lines)
    candidates = [i for i in range(len(doubts)) if i < count or i >= count + lines]
    doubtful = [i for i in candidates if doubts[i] > MAX_DOUBT]
    return max(doubtful, key=lambda i: doubts[i], default=None)


def _drop_unknown(problem: _Problem, index: int) -> _Problem:
    count = len(problem.constants)
    if index < count:
        remaining = problem.constants[:index] + problem.constants[index + 1 :]
        return _Problem(problem.blocks, remaining, problem.lines, problem.free_shares)
    ordered = [line.key for line in problem.lines if line.key in problem.free_shares]
    dropped = ordered[index - count - len(problem.lines)]
    return _Problem(
        problem.blocks, problem.constants, problem.lines, problem.free_shares - {dropped}
    )


def _soften(errors: Floats) -> Floats:
    """Return residuals whose squares grow like soft-L1, so that one bad run does not distort a constant."""
    return errors * np.sqrt(2 / (1 + np.sqrt(1 + errors**2)))
