"""Score the value of measured multi-GPU figures.

Every row of a source is predicted with none, one, or two other rows of the source known. The prior of the stacks comes
from all other sources.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gpuyard.catalog.published import SIZING_TABLES, TRAINING_TABLES, published_table
from gpuyard.catalog.published_rows import PublishedRow
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.interval import Distance, PredictionInterval
from gpuyard.predictor.software_stacks.posterior import STACKS, PredictionPoints, compute_posterior
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.cases import compile_cases
from gpuyard.predictor.validation.score import measure_distance, spread_without

_MAX_ROWS = 400  # per source; more rows add no information
# how sharply a source's rows select among stacks: one σ of a row, and the number of rows a source counts as
_ROW_SIGMA, _EFFECTIVE_ROWS = 0.06, 8.0
_MIN_OTHERS_SHARE = 0.25  # minimum share of all sources in a framework's prior
_UNIFORM_SHARE = 0.02  # share of the prior that is uniform, for stacks that no source has


@dataclass(frozen=True)
class EvaluatedRow:
    """A published row with the terms of its prediction."""

    row: PublishedRow
    log_seconds: float  # as published
    predicted: float  # log seconds by the constants alone
    by_stack: Floats
    doublings: float
    exchanged: float
    exposed: float
    batch: float


@dataclass(frozen=True)
class PointsScore:
    """The score of a source with a number of its figures known."""

    points: int
    rows: int
    inside_interval: float
    median_interval_width: float
    median_abs_error: float


@cache
def evaluate_rows(
    tables: tuple[str, ...] = (*TRAINING_TABLES, *SIZING_TABLES),
) -> dict[str, tuple[EvaluatedRow, ...]]:
    """Evaluate the rows of each source with constants fitted without their table.

    Large sources are sampled evenly.
    """
    by_source: dict[str, list[EvaluatedRow]] = {}
    for table in tables:
        tuning = load_tuning(table if table in TRAINING_TABLES else None)
        rows = published_table(table).rows
        totals = Counter(row.source for row in rows)
        counts: Counter[str] = Counter()
        sampled = []
        for row in rows:
            if counts[row.source] % -(-totals[row.source] // _MAX_ROWS) == 0:
                sampled.append(row)
            counts[row.source] += 1
        for cases in compile_cases(sampled):
            parts, stacks = cases.predict(tuning), cases.log_seconds_by_stack(tuning)
            distance = measure_distance(cases, parts)
            columns = zip(
                cases.rows, np.log(cases.measured_seconds), np.log(parts.step_seconds), stacks.T,
                distance.doublings, distance.exchanged, distance.exposed,
                np.broadcast_to(distance.batch, len(cases.rows)), strict=True,
            )  # fmt: skip
            for row, *values in columns:
                by_source.setdefault(row.source, []).append(EvaluatedRow(row, *values))
    return {source: tuple(members) for source, members in by_source.items()}


@cache
def source_weights() -> dict[str, Floats]:
    """Return, for each source, the probability of each stack given its rows."""
    return {source: _weigh_stacks(members) for source, members in evaluate_rows().items()}


def mix_priors(weights: Sequence[Floats]) -> Floats:
    """Mix the weights of sources, each with the same weight."""
    uniform = np.full(len(STACKS), 1 / len(STACKS))
    mean = np.mean(weights, axis=0)
    return np.asarray((1 - _UNIFORM_SHARE) * mean + _UNIFORM_SHARE * uniform)


@cache
def source_frameworks() -> dict[str, frozenset[str]]:
    return {
        source: frozenset(m.row.framework for m in members)
        for source, members in evaluate_rows().items()
    }


def framework_prior(framework: str, without: str | None = None) -> Floats:
    """Return the prior of stacks under a framework, optionally without one source.

    All sources together count as one additional source of the framework: its next user may differ, especially if
    few sources have published.
    """
    weights = {name: weight for name, weight in source_weights().items() if name != without}
    own = [weight for name, weight in weights.items() if framework in source_frameworks()[name]]
    any_framework = mix_priors(list(weights.values()))
    if not own:
        return any_framework
    others_share = max(_MIN_OTHERS_SHARE, 1 / (len(own) + 1))
    return (1 - others_share) * mix_priors(own) + others_share * any_framework


def score_named_frameworks() -> dict[str, PointsScore]:
    """Score sources by their framework alone if other sources share it."""
    scores = {}
    for source, members in evaluate_rows().items():
        names = source_frameworks()[source]
        shared = [
            name
            for name in names
            if any(
                name in frameworks
                for other, frameworks in source_frameworks().items()
                if other != source
            )
        ]
        if len(names) == 1 and shared:
            scores[source] = _score_source(source, members, 0, framework_prior(shared[0], source))
    return scores


def _weigh_stacks(members: Sequence[EvaluatedRow]) -> Floats:
    """Return the probability of each stack given a source's rows; all series weigh the same."""
    series = [(m.row.series, m.row.model, m.row.precision) for m in members]
    sizes = Counter(series)
    weight = np.array([1 / sizes[name] / len(sizes) for name in series])
    residuals = np.array([m.log_seconds - m.by_stack for m in members]) / _ROW_SIGMA
    # large residuals count logarithmically: a single odd row does not rule a stack out
    score = -_EFFECTIVE_ROWS * (weight @ np.log1p(residuals**2 / 2))
    likelihood = np.exp(score - score.max())
    return np.asarray(likelihood / likelihood.sum())


def score_points(
    points: Sequence[int], tables: tuple[str, ...] = (*TRAINING_TABLES, *SIZING_TABLES)
) -> dict[str, list[PointsScore]]:
    """Score every source with each number of known figures."""
    return {
        source: [_score_source(source, members, count) for count in points]
        for source, members in evaluate_rows(tables).items()
    }


def _score_source(
    source: str, members: Sequence[EvaluatedRow], count: int, prior: Floats | None = None
) -> PointsScore:
    """Score the rows of a source with `count` figures known, under the prior of a named framework if given."""
    others = [weights for name, weights in source_weights().items() if name != source]
    has_framework = prior is not None
    prior = mix_priors(others) if prior is None else prior
    inside, widths, errors = [], [], []
    for target in members:
        given_rows = _choose_known(target, members, count)
        if has_framework or (count and given_rows):
            posterior = compute_posterior(
                _to_points([target]),
                _to_points(given_rows),
                np.array([row.log_seconds for row in given_rows]),
                c.UNCERTAINTY["measured"],
                prior,
            )
            middle, interval = float(posterior.log_seconds[0]), posterior.interval
            if given_rows:
                log_lead = posterior.log_seconds - target.predicted
                interval = interval.limit_width(_any_stack_interval(target, source), log_lead)
        else:
            middle, interval = target.predicted, _any_stack_interval(target, source)
        if has_framework:
            log_lead = np.array([middle - target.predicted])
            interval = interval.clip_to(_any_stack_interval(target, source), log_lead)
        slow, fast = float(interval.slow[0]), float(interval.fast[0])
        error = target.log_seconds - middle
        inside.append(-fast <= error <= slow)
        widths.append((np.exp(fast) - np.exp(-slow)) / 2)
        errors.append(abs(np.expm1(error)))
    return PointsScore(
        count,
        len(members),
        float(np.mean(inside)),
        float(np.median(widths)),
        float(np.median(errors)),
    )


def _any_stack_interval(target: EvaluatedRow, source: str) -> PredictionInterval:
    terms = (target.doublings, target.exchanged, target.exposed, target.batch)
    distance = Distance(*(np.array([term]) for term in terms))
    interval = PredictionInterval.from_spread(distance, spread_without(source))
    return interval.add_sigma(c.UNCERTAINTY["measured"])


def _choose_known(
    target: EvaluatedRow, members: Sequence[EvaluatedRow], count: int
) -> list[EvaluatedRow]:
    """Choose the runs that a user would do first.

    These are runs of the same training on the most GPUs of one machine, then on the fewest machines. If a series has
    nothing else, another training of the same source is used.
    """

    def order(other: EvaluatedRow) -> tuple[bool, bool, bool, float, float, float]:
        row, own = other.row, target.row
        same = (row.series, row.model, row.precision) == (own.series, own.model, own.precision)
        batch = abs(np.log(row.batch_per_gpu / own.batch_per_gpu))
        one_machine = row.nodes == own.anchor.nodes
        size = -row.gpus if one_machine else row.gpus
        return (not same, row.model != own.model, not one_machine, batch, size, other.log_seconds)

    others = [other for other in members if other is not target]
    return sorted(others, key=order)[:count]


def _to_points(members: Sequence[EvaluatedRow]) -> PredictionPoints:
    return PredictionPoints(
        np.array([m.row.gpus for m in members], dtype=float),
        np.array([m.row.nodes for m in members], dtype=float),
        np.array([m.row.batch_per_gpu for m in members], dtype=float),
        np.array([m.exchanged for m in members], dtype=float),
        np.array([m.by_stack for m in members]).T,
        tuple(f"{m.row.series} {m.row.model} {m.row.precision}" for m in members),
    )
