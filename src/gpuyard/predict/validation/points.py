"""What a measured figure of several GPUs is worth: every row of a source predicted with none, one or two others of
the same source known, by stacks as likely as all other sources make them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gpuyard.catalog.published import SIZING_TABLES, TRAINING_TABLES, published
from gpuyard.catalog.published_rows import PublishedRow
from gpuyard.predict import constants as c
from gpuyard.predict.constants import fitted
from gpuyard.predict.interval import Distance, Reach
from gpuyard.predict.stacks.posterior import STACKS, Spots, posterior
from gpuyard.predict.table import Floats
from gpuyard.predict.validation.cases import compiled
from gpuyard.predict.validation.score import distance, spread_without

_MOST_ROWS = 400  # of a source; more say the same
# how sharply a source's rows choose among stacks: one σ of a row, and how many rows it counts as
_ROW_SIGMA, _ROWS = 0.06, 8.0
_OTHERS = 0.25  # of a framework's prior is by all sources, at least
_ANY = 0.02  # of the prior is spread evenly: a stack that no source has


@dataclass(frozen=True)
class KnownRow:
    """A published row with what its prediction stands on."""

    row: PublishedRow
    log_seconds: float  # as published
    predicted: float  # by the constants alone
    by_stack: Floats
    doublings: float
    exchanged: float
    exposed: float
    batch: float


@dataclass(frozen=True)
class PointsScore:
    """A source with so many of its figures known."""

    points: int
    rows: int
    inside_interval: float
    median_interval_width: float
    median_abs_error: float


@cache
def known_rows(
    tables: tuple[str, ...] = (*TRAINING_TABLES, *SIZING_TABLES),
) -> dict[str, tuple[KnownRow, ...]]:
    """By source, every table by constants that were fitted without it; of many rows every so-manieth."""
    found: dict[str, list[KnownRow]] = {}
    for table in tables:
        tuning = fitted(table if table in TRAINING_TABLES else None)
        rows = published(table).rows
        many = Counter(row.source for row in rows)
        seen: Counter[str] = Counter()
        chosen = []
        for row in rows:
            if seen[row.source] % -(-many[row.source] // _MOST_ROWS) == 0:
                chosen.append(row)
            seen[row.source] += 1
        for cases in compiled(chosen):
            parts, stacks = cases.predicted(tuning), cases.by_stack(tuning)
            far = distance(cases, parts)
            columns = zip(
                cases.rows, np.log(cases.measured_seconds), np.log(parts.step_seconds), stacks.T,
                far.doublings, far.exchanged, far.exposed, np.broadcast_to(far.batch, len(cases.rows)),
                strict=True,
            )  # fmt: skip
            for row, *values in columns:
                found.setdefault(row.source, []).append(KnownRow(row, *values))
    return {source: tuple(members) for source, members in found.items()}


@cache
def source_weights() -> dict[str, Floats]:
    """Of each source, how likely each stack is by its rows, every series counting the same."""
    return {source: _explaining(members) for source, members in known_rows().items()}


def prior_of(weights: Sequence[Floats]) -> Floats:
    """Sources mixed, each counting the same."""
    even = np.full(len(STACKS), 1 / len(STACKS))
    return np.asarray((1 - _ANY) * np.mean(weights, axis=0) + _ANY * even)


@cache
def source_frameworks() -> dict[str, frozenset[str]]:
    return {
        source: frozenset(m.row.framework for m in members)
        for source, members in known_rows().items()
    }


def framework_prior(framework: str, without: str | None = None) -> Floats:
    """As likely as sources under one framework make stacks, and a part by all, which count as one source of it: its
    next user may differ, the more so the fewer have published. A source can be left out."""
    weights = {name: found for name, found in source_weights().items() if name != without}
    own = [found for name, found in weights.items() if framework in source_frameworks()[name]]
    every = prior_of(list(weights.values()))
    if not own:
        return every
    others = max(_OTHERS, 1 / (len(own) + 1))
    return (1 - others) * prior_of(own) + others * every


def score_described() -> dict[str, PointsScore]:
    """Every source whose framework others have too, with the framework named and nothing measured."""
    found = {}
    for source, members in known_rows().items():
        names = source_frameworks()[source]
        shared = [
            name
            for name in names
            if any(name in of for other, of in source_frameworks().items() if other != source)
        ]
        if len(names) == 1 and shared:
            found[source] = _scored(source, members, 0, framework_prior(shared[0], source))
    return found


def _explaining(members: Sequence[KnownRow]) -> Floats:
    series = [(m.row.series, m.row.model, m.row.precision) for m in members]
    many = Counter(series)
    weight = np.array([1 / many[one] / len(many) for one in series])
    off = np.array([m.log_seconds - m.by_stack for m in members]) / _ROW_SIGMA
    # far off counts by the logarithm: one strange row does not rule a stack out
    score = -_ROWS * (weight @ np.log1p(off**2 / 2))
    found = np.exp(score - score.max())
    return np.asarray(found / found.sum())


def score_points(
    points: Sequence[int], tables: tuple[str, ...] = (*TRAINING_TABLES, *SIZING_TABLES)
) -> dict[str, list[PointsScore]]:
    """Every source with each number of figures known."""
    return {
        source: [_scored(source, members, count) for count in points]
        for source, members in known_rows(tables).items()
    }


def _scored(
    source: str, members: Sequence[KnownRow], count: int, described: Floats | None = None
) -> PointsScore:
    others = [weights for name, weights in source_weights().items() if name != source]
    prior = prior_of(others) if described is None else described
    inside, widths, errors = [], [], []
    for one in members:
        chosen = _chosen(one, members, count)
        if described is not None or (count and chosen):
            found = posterior(
                _spots([one]),
                _spots(chosen),
                np.array([known.log_seconds for known in chosen]),
                c.UNCERTAINTY["measured"],
                prior,
            )
            middle, reach = float(found.log_seconds[0]), found.reach
            if chosen:
                reach = reach.no_wider(_unknown(one, source), found.log_seconds - one.predicted)
        else:
            middle, reach = one.predicted, _unknown(one, source)
        if described is not None:  # inside the interval of any stack, if it is there at all
            reach = reach.within(_unknown(one, source), np.array([middle - one.predicted]))
        slow, fast = float(reach.slow[0]), float(reach.fast[0])
        off = one.log_seconds - middle
        inside.append(-fast <= off <= slow)
        widths.append((np.exp(fast) - np.exp(-slow)) / 2)
        errors.append(abs(np.expm1(off)))
    return PointsScore(
        count,
        len(members),
        float(np.mean(inside)),
        float(np.median(widths)),
        float(np.median(errors)),
    )


def _unknown(one: KnownRow, source: str) -> Reach:
    far = Distance(*(np.array([x]) for x in (one.doublings, one.exchanged, one.exposed, one.batch)))
    return Reach.of(far, spread_without(source)).and_sigma(c.UNCERTAINTY["measured"])


def _chosen(one: KnownRow, members: Sequence[KnownRow], count: int) -> list[KnownRow]:
    """What somebody would have run: the same training on most GPUs of one machine, then on the fewest machines;
    where a series has nothing else, another training of the same source."""

    def order(other: KnownRow) -> tuple[bool, bool, bool, float, float, float]:
        row, own = other.row, one.row
        same = (row.series, row.model, row.precision) == (own.series, own.model, own.precision)
        batch = abs(np.log(row.batch_per_gpu / own.batch_per_gpu))
        one_machine = row.nodes == own.anchor.nodes
        size = -row.gpus if one_machine else row.gpus
        return (not same, row.model != own.model, not one_machine, batch, size, other.log_seconds)

    rest = [other for other in members if other is not one]
    return sorted(rest, key=order)[:count]


def _spots(members: Sequence[KnownRow]) -> Spots:
    return Spots(
        np.array([m.row.gpus for m in members], dtype=float),
        np.array([m.row.nodes for m in members], dtype=float),
        np.array([m.row.batch_per_gpu for m in members], dtype=float),
        np.array([m.exchanged for m in members], dtype=float),
        np.array([m.by_stack for m in members]).T,
        tuple(f"{m.row.series} {m.row.model} {m.row.precision}" for m in members),
    )
