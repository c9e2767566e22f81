"""Adding to machines that are there already: they do the runs that they can, and the cheapest answer for the runs
that are left stands beside them. A run is never on both: all GPUs of a step wait for the slowest."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import owned_usd
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.costs import owned_machines
from gpuyard.planner.explain.choices import best_choice, choices
from gpuyard.planner.mixes import bases, find_mixes, repriced_usd
from gpuyard.planner.offers import BOUGHT
from gpuyard.planner.ranking import Ranking, plainest_of, rank, same_machines
from gpuyard.planner.result import Choice, KeptPart
from gpuyard.predict.table import Floats
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition

ADDED: tuple[Acquisition, ...] = (*BOUGHT, *RESERVED_YEARS)
"""What is had for all of the time, as what is kept."""
_MOST_KINDS = 8
_MOST_TRIED = 12  # each is priced against everything that could stand beside it


@dataclass(frozen=True)
class KeptClusters:
    """Machines of one kind: no more than there are, and than the runs want."""

    row: int  # of the candidates
    clusters: int


@dataclass(frozen=True)
class Extended:
    """What is kept, what is added, and the rows of the candidates that the latter is made of."""

    choice: Choice
    rows: tuple[int, ...]

    def beats(self, other: Choice | None) -> bool:
        """It meets the goal, for less."""
        cheaper = other is None or self.choice.usd_per_run < other.usd_per_run
        return self.choice.meets_goal and cheaper


@dataclass(frozen=True)
class _Layer:
    """What a pool does of the runs: those above what the pools before it do."""

    pool: KeptClusters
    runs: float  # over the horizon
    run_hours: float
    utilisation: float
    usd: float


def kept_and_added(candidates: Candidates, ranking: Ranking) -> Extended | None:
    """The cheapest that meets the goal; None where nothing is kept, it needs no help, or nothing helps."""
    pools = _pools(candidates, ranking)
    found = [one for some in _sets(pools) if (one := _extended(candidates, some)) is not None]
    return min(found, key=lambda one: one.choice.usd_per_run, default=None)


def _sets(pools: list[KeptClusters]) -> Iterator[list[KeptClusters]]:
    """What may be kept: of each kind one, some or all, and all of the first kinds together."""
    for pool in pools[:_MOST_KINDS]:
        for clusters in _counts(pool.clusters, max(2, _MOST_TRIED // len(pools))):
            yield [replace(pool, clusters=clusters)]
    for kinds in range(2, len(pools) + 1)[-_MOST_KINDS:]:
        yield pools[:kinds]


def _counts(most: int, tried: int) -> list[int]:
    """From one to all, evenly spread where there are many."""
    return sorted(set(np.linspace(1, most, min(most, tried)).round().astype(int).tolist()))


def _pools(candidates: Candidates, ranking: Ranking) -> list[KeptClusters]:
    """Of every kind that does a run in time, in the number of nodes that does most; the cheapest to run first."""
    costs, offer = candidates.costs, candidates.offer
    rows = bases(candidates, ranking)
    rows = rows[(candidates.acquired_by("keep") & ranking.in_time)[rows]]
    nodes = candidates.throughputs.nodes[candidates.row[rows]]
    most = np.floor(candidates.kept_machines[rows] / nodes)
    runs = _runs_per_month(candidates, costs.run_seconds[rows] / 3600)
    best: dict[str, tuple[float, int]] = {}
    for row, capacity in zip(rows.tolist(), (most * runs).tolist(), strict=True):
        kind = candidates.offers[offer[row]].server.id
        best[kind] = max(best.get(kind, (0.0, -1)), (capacity, row))
    chosen = np.array([row for capacity, row in best.values() if capacity > 0], dtype=np.int64)
    watts = (
        candidates.columns.watts[offer[chosen]]
        * candidates.throughputs.nodes[candidates.row[chosen]]
    )
    order = np.argsort(watts * costs.run_seconds[chosen], kind="stable")
    found = []
    for row in chosen[order].tolist():
        alike = same_machines(candidates, row)
        alike = alike[(ranking.in_time & ~ranking.impossible)[alike]]
        plain = plainest_of(
            candidates, alike, costs.run_seconds[alike], costs.run_seconds[alike], int(np.searchsorted(alike, row))
        )  # fmt: skip
        each = float(_runs_per_month(candidates, costs.run_seconds[[plain]] / 3600)[0])
        there = int(
            candidates.kept_machines[row] // candidates.throughputs.nodes[candidates.row[row]]
        )
        wanted = max(1, int(np.ceil(candidates.runs.peak_per_month / each - 1e-9)))
        found.append(KeptClusters(plain, min(there, wanted)))
    return found


def _runs_per_month(candidates: Candidates, run_hours: Floats) -> Floats:
    """That one cluster does."""
    return HOURS_PER_MONTH * candidates.plan.owning.busy_at_most / run_hours


def _extended(candidates: Candidates, pools: list[KeptClusters]) -> Extended | None:
    speeds = candidates.throughputs.samples_per_second
    layers, left = _layers(candidates, pools, speeds)
    kept_usd = sum(layer.usd for layer in layers)
    if left <= 0:
        return _only_kept(candidates, layers) if len(layers) > 1 else None
    runs = replace(candidates.runs, elsewhere_per_month=_capacity(candidates, layers))
    plan = candidates.plan
    if plan.budget is not None:
        plan = plan.model_copy(update={"budget": plan.budget - kept_usd})
    rest = replace(candidates.for_runs(runs), plan=plan)
    ranking = rank(rest, nothing_kept=True)
    if len(pools) == 1:  # with what is rented by the run, one kind is a mix already
        among = np.flatnonzero(ranking.feasible & rest.acquired_by(*ADDED))
        usd = rest.costs.usd_per_run[among]
        ranking = replace(ranking, winner=int(among[np.argmin(usd)]) if len(among) else None)
    added, rows = best_choice(rest, ranking, find_mixes(rest, ranking))
    if added is None:
        return None
    total = kept_usd + added.total_usd
    low, high = (
        _at_end(rest, pools, added, rows, end) / candidates.runs.total
        for end in (candidates.throughputs.high, candidates.throughputs.low)
    )
    share = left / candidates.runs.total
    rented = added.rest and replace(added.rest, share_of_runs=added.rest.share_of_runs * share)
    return Extended(
        _with_kept(
            candidates,
            replace(added, owned_way=added.owned_way or added.way, rest=rented),
            layers,
            total=total,
            low=low,
            high=high,
        ),
        rows,
    )


def _only_kept(candidates: Candidates, layers: list[_Layer]) -> Extended:
    """Kinds that are there do all of it together: the last one as the choice, the others beside it."""
    *others, last = layers
    (choice,) = choices(candidates, rank(candidates), [last.pool.row])
    choice = replace(
        choice,
        owned_way="keep",
        clusters=last.pool.clusters,
        utilisation=last.utilisation,
        watts=choice.watts / choice.clusters * last.pool.clusters,
        broken_rules=(),
    )
    total = sum(layer.usd for layer in layers)
    low, high = (
        sum(layer.usd for layer in _layers(candidates, [one.pool for one in layers], end)[0])
        / candidates.runs.total
        for end in (candidates.throughputs.high, candidates.throughputs.low)
    )
    made = _with_kept(candidates, choice, others, total=total, low=low, high=high)
    return Extended(made, (last.pool.row,))


def _with_kept(
    candidates: Candidates,
    added: Choice,
    layers: list[_Layer],
    *,
    total: float,
    low: float,
    high: float,
) -> Choice:
    """The choice of what is added, with what is kept beside it and all of the costs."""
    plan = candidates.plan
    made = choices(candidates, rank(candidates), [layer.pool.row for layer in layers])
    seconds, fast, slow = (
        max(getattr(added, name), *(getattr(one, name) for one in made))
        for name in ("run_seconds", "run_seconds_low", "run_seconds_high")
    )
    return replace(
        added,
        way="hybrid",
        run_seconds=seconds,
        run_seconds_low=fast,
        run_seconds_high=slow,
        total_usd=total,
        usd_per_run=total / candidates.runs.total,
        usd_per_run_low=low,
        usd_per_run_high=high,
        watts=added.watts
        + sum(
            one.watts / one.clusters * layer.pool.clusters
            for one, layer in zip(made, layers, strict=True)
        ),
        in_budget=plan.budget is None or total <= plan.budget,
        kept=tuple(
            KeptPart(
                offer=one.offer,
                name=one.name,
                gpu=one.gpu,
                nodes=one.nodes,
                clusters=layer.pool.clusters,
                gpus=one.gpus,
                batch_per_gpu=one.batch_per_gpu,
                remedy=one.remedy,
                precision=one.precision,
                run_seconds=one.run_seconds,
                share_of_runs=layer.runs / candidates.runs.total,
                utilisation=layer.utilisation,
                total_usd=layer.usd,
            )
            for one, layer in zip(made, layers, strict=True)
        ),
    )


def _layers(
    candidates: Candidates, pools: list[KeptClusters], samples_per_second: Floats
) -> tuple[list[_Layer], float]:
    """What each does and costs if it were so fast, and how many runs are left."""
    runs = candidates.runs
    left = runs
    found = []
    for pool in pools:
        hours = candidates.run_hours(samples_per_second[candidates.row[[pool.row]]])
        after = replace(
            left,
            elsewhere_per_month=left.elsewhere_per_month
            + pool.clusters * float(_runs_per_month(candidates, hours)[0]),
        )
        done = left.total - after.total
        busy = done * float(hours[0]) / (pool.clusters * runs.months * HOURS_PER_MONTH)
        owned = owned_machines(
            candidates.plan, candidates.premises, candidates.rows(np.array([pool.row]), hours), "keep",
            clusters=float(pool.clusters), utilisation=busy, years=runs.years,
        )  # fmt: skip
        usd = float(owned_usd(owned, runs.years)[0])
        found.append(_Layer(pool, done, float(hours[0]), busy, usd))
        left = after
    return found, left.total


def _capacity(candidates: Candidates, layers: list[_Layer]) -> float:
    hours = np.array([layer.run_hours for layer in layers])
    clusters = np.array([layer.pool.clusters for layer in layers])
    return float((clusters * _runs_per_month(candidates, hours)).sum())


def _at_end(
    rest: Candidates, pools: list[KeptClusters], added: Choice, rows: tuple[int, ...], end: Floats
) -> float:
    """What all of it comes to where everything is as fast as at one end of its interval: what is kept does
    more or fewer of the runs then."""
    candidates = replace(rest, runs=replace(rest.runs, elsewhere_per_month=0.0))
    layers, _ = _layers(candidates, pools, end)
    runs = replace(rest.runs, elsewhere_per_month=_capacity(candidates, layers))
    at_end = replace(rest, runs=runs)
    speeds = end[rest.row[list(rows)]]
    kept = sum(layer.usd for layer in layers)
    if runs.total <= 0 and added.owned_way is None and added.way not in ADDED:
        return kept
    if added.rest is not None:
        base, rented = rows
        return kept + repriced_usd(
            at_end, base, rented, float(added.clusters), (float(speeds[0]), float(speeds[1]))
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        return kept + float(at_end.priced(np.array(rows), speeds).total_usd[0])
