"""Keep the machines you have and add to them.

The kept machines do the runs that they can, and the cheapest answer for the remaining runs is added. A run never uses
both, because all GPUs of a step wait for the slowest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import owned_usd
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choice import Choice, KeptPart
from gpuyard.planner.choices import choose_best, combine_errors, create_choices
from gpuyard.planner.costs import describe_owned_machines
from gpuyard.planner.mixes import find_bases, find_mixes, reprice_mix
from gpuyard.planner.offers import BOUGHT
from gpuyard.planner.ranking import Ranking, find_same_machines, find_simplest, rank
from gpuyard.predictor.table import Floats
from gpuyard.specs.plan_candidates import RESERVED_YEARS, Acquisition

COMMITTED: tuple[Acquisition, ...] = (*BOUGHT, *RESERVED_YEARS)
"""Acquisitions that are paid for all the time, like kept machines."""
_MAX_KINDS = 8
_MAX_TRIED = 12  # each is priced against everything that could be added


@dataclass(frozen=True)
class KeptClusters:
    """Clusters of one kind of kept machine."""

    row: int  # of the candidates
    clusters: int


@dataclass(frozen=True)
class Expansion:
    """The choice of kept and added machines, and the candidate rows of the added ones."""

    choice: Choice
    rows: tuple[int, ...]

    def beats(self, other: Choice | None) -> bool:
        """Return whether it meets the goal for less."""
        cheaper = other is None or self.choice.usd_per_run < other.usd_per_run
        return self.choice.meets_goal and cheaper


@dataclass(frozen=True)
class _PoolUse:
    """The runs that one pool does on top of the pools before it, and their cost."""

    pool: KeptClusters
    runs: float  # over the horizon
    run_hours: float
    utilization: float
    usd: float


def find_expansion(candidates: Candidates, ranking: Ranking) -> Expansion | None:
    """Find the cheapest expansion that meets the goal; None if nothing is kept or an addition does not help."""
    pools = _find_pools(candidates, ranking)
    expansions = (_expand(candidates, pool_set) for pool_set in _list_pool_sets(pools))
    return min(
        (expansion for expansion in expansions if expansion is not None),
        key=lambda expansion: expansion.choice.usd_per_run,
        default=None,
    )


def _list_pool_sets(pools: list[KeptClusters]) -> Iterator[list[KeptClusters]]:
    """List what may be kept: one, some, or all of each kind, and all of the first kinds together."""
    for pool in pools[:_MAX_KINDS]:
        for clusters in _spread_counts(pool.clusters, max(2, _MAX_TRIED // len(pools))):
            yield [replace(pool, clusters=clusters)]
    for kinds in range(2, len(pools) + 1)[-_MAX_KINDS:]:
        yield pools[:kinds]


def _spread_counts(maximum: int, tried: int) -> list[int]:
    """Return counts from 1 to the maximum, evenly spread if there are many."""
    return sorted(set(np.linspace(1, maximum, min(maximum, tried)).round().astype(int).tolist()))


def _find_pools(candidates: Candidates, ranking: Ranking) -> list[KeptClusters]:
    """Return each kept kind that finishes in time, at the node count that does most runs; cheapest to run first."""
    costs, offer, nodes = candidates.costs, candidates.offer, candidates.throughputs.nodes
    rows = find_bases(candidates, ranking)
    rows = rows[(candidates.acquired_by("keep") & ranking.in_time)[rows]]
    clusters = np.floor(candidates.kept_machines[rows] / nodes[candidates.row[rows]])
    runs = _runs_per_month(candidates, costs.run_seconds[rows] / 3600)
    best: dict[str, tuple[float, int]] = {}
    for row, capacity in zip(rows.tolist(), (clusters * runs).tolist(), strict=True):
        kind = candidates.offers[offer[row]].server.id
        best[kind] = max(best.get(kind, (0.0, -1)), (capacity, row))
    chosen = np.array([row for capacity, row in best.values() if capacity > 0], dtype=np.int64)
    watts = candidates.columns.watts[offer[chosen]] * nodes[candidates.row[chosen]]
    order = np.argsort(watts * costs.run_seconds[chosen], kind="stable")
    pools = []
    for row in chosen[order].tolist():
        same = find_same_machines(candidates, row)
        same = same[(ranking.in_time & ~ranking.impossible)[same]]
        seconds = costs.run_seconds[same]
        simple = find_simplest(candidates, same, seconds, seconds, int(np.searchsorted(same, row)))
        runs_each = float(_runs_per_month(candidates, costs.run_seconds[[simple]] / 3600)[0])
        available = int(candidates.kept_machines[row] // nodes[candidates.row[row]])
        needed = max(1, int(np.ceil(candidates.runs.peak_per_month / runs_each - 1e-9)))
        pools.append(KeptClusters(simple, min(available, needed)))
    return pools


def _runs_per_month(candidates: Candidates, run_hours: Floats) -> Floats:
    """Return the runs per month that one cluster can do."""
    return HOURS_PER_MONTH * candidates.plan.owning.busy_at_most / run_hours


def _expand(candidates: Candidates, pools: list[KeptClusters]) -> Expansion | None:
    """Add the cheapest answer for the runs that the pools cannot do."""
    uses, remaining = _assign_runs(candidates, pools, candidates.throughputs.samples_per_second)
    kept_usd = sum(use.usd for use in uses)
    if remaining <= 0:
        return _combine_pools(candidates, uses) if len(uses) > 1 else None
    runs = replace(
        candidates.runs, done_elsewhere_per_month=_total_runs_per_month(candidates, uses)
    )
    plan = candidates.plan
    if plan.budget is not None:
        plan = plan.model_copy(update={"budget": plan.budget - kept_usd})
    rest = replace(candidates.reprice_for_runs(runs), plan=plan)
    ranking = rank(rest, exclude_kept=True)
    if len(pools) == 1:  # one kind plus machines rented by the run is already a mix
        among = np.flatnonzero(ranking.feasible & rest.acquired_by(*COMMITTED))
        usd = rest.costs.usd_per_run[among]
        ranking = replace(ranking, winner=int(among[np.argmin(usd)]) if len(among) else None)
    added, rows = choose_best(rest, ranking, find_mixes(rest, ranking))
    if added is None:
        return None
    low, high = _find_interval(
        rest, pools, added, rows, (kept_usd + added.total_usd) / candidates.runs.total
    )
    share = remaining / candidates.runs.total
    rented = added.rest and replace(added.rest, share_of_runs=added.rest.share_of_runs * share)
    choice = _add_kept_parts(
        candidates,
        replace(added, owned_way=added.owned_way or added.way, rest=rented),
        uses,
        total=kept_usd + added.total_usd,
        low=low,
        high=high,
    )
    return Expansion(choice, rows)


def _combine_pools(candidates: Candidates, uses: list[_PoolUse]) -> Expansion:
    """Combine kept kinds that do all runs together: the last one as the choice, the others as kept parts."""
    *others, last = uses
    (choice,) = create_choices(candidates, rank(candidates), [last.pool.row])
    choice = replace(
        choice,
        owned_way="keep",
        clusters=last.pool.clusters,
        utilization=last.utilization,
        watts=choice.watts / choice.clusters * last.pool.clusters,
        broken_rules=(),
    )
    total = sum(use.usd for use in uses)
    pools = [use.pool for use in uses]
    low, high = (
        sum(use.usd for use in _assign_runs(candidates, pools, rates)[0]) / candidates.runs.total
        for rates in (candidates.throughputs.high, candidates.throughputs.low)
    )
    combined = _add_kept_parts(candidates, choice, others, total=total, low=low, high=high)
    return Expansion(combined, (last.pool.row,))


def _add_kept_parts(
    candidates: Candidates,
    added: Choice,
    uses: list[_PoolUse],
    *,
    total: float,
    low: float,
    high: float,
) -> Choice:
    """Return the choice of added machines with the kept parts and the costs of both."""
    plan = candidates.plan
    kept = create_choices(candidates, rank(candidates), [use.pool.row for use in uses])
    seconds, fast, slow = (
        max(getattr(added, name), *(getattr(choice, name) for choice in kept))
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
            choice.watts / choice.clusters * use.pool.clusters
            for choice, use in zip(kept, uses, strict=True)
        ),
        in_budget=plan.budget is None or total <= plan.budget,
        kept=tuple(
            KeptPart(
                offer=choice.offer,
                name=choice.name,
                gpu=choice.gpu,
                nodes=choice.nodes,
                clusters=use.pool.clusters,
                gpus=choice.gpus,
                batch_per_gpu=choice.batch_per_gpu,
                remedy=choice.remedy,
                precision=choice.precision,
                run_seconds=choice.run_seconds,
                share_of_runs=use.runs / candidates.runs.total,
                utilization=use.utilization,
                total_usd=use.usd,
            )
            for choice, use in zip(kept, uses, strict=True)
        ),
    )


def _assign_runs(
    candidates: Candidates, pools: list[KeptClusters], samples_per_second: Floats
) -> tuple[list[_PoolUse], float]:
    """Assign runs to the pools in order, at the given speeds; also return how many runs remain."""
    runs = candidates.runs
    remaining = runs
    uses = []
    for pool in pools:
        hours = candidates.run_hours(samples_per_second[candidates.row[[pool.row]]])
        pool_runs_per_month = pool.clusters * float(_runs_per_month(candidates, hours)[0])
        after = replace(
            remaining,
            done_elsewhere_per_month=remaining.done_elsewhere_per_month + pool_runs_per_month,
        )
        pool_runs = remaining.total - after.total
        busy = pool_runs * float(hours[0]) / (pool.clusters * runs.months * HOURS_PER_MONTH)
        rows = candidates.price_rows(np.array([pool.row]), hours)
        owned = describe_owned_machines(
            candidates.plan, candidates.premises, rows, "keep",
            clusters=float(pool.clusters), utilization=busy, years=runs.years,
        )  # fmt: skip
        usd = float(owned_usd(owned, runs.years)[0])
        uses.append(_PoolUse(pool, pool_runs, float(hours[0]), busy, usd))
        remaining = after
    return uses, remaining.total


def _total_runs_per_month(candidates: Candidates, uses: list[_PoolUse]) -> float:
    hours = np.array([use.run_hours for use in uses])
    clusters = np.array([use.pool.clusters for use in uses])
    return float((clusters * _runs_per_month(candidates, hours)).sum())


def _find_interval(
    rest: Candidates, pools: list[KeptClusters], added: Choice, rows: tuple[int, ...], usd: float
) -> tuple[float, float]:
    """Return both ends of the cost per run: at other speeds, and at other prices of the added machines."""
    predicted = rest.throughputs
    runs = replace(rest.runs, done_elsewhere_per_month=0.0).total

    def price(candidates: Candidates, rates: Floats) -> float:
        return _price_at(candidates, pools, added, rows, rates) / runs

    fast, slow = price(rest, predicted.high), price(rest, predicted.low)
    cheap = price(rest.at_price_end("low"), predicted.samples_per_second)
    dear = price(rest.at_price_end("high"), predicted.samples_per_second)
    return combine_errors(usd, fast, cheap), combine_errors(usd, slow, dear)


def _price_at(
    rest: Candidates, pools: list[KeptClusters], added: Choice, rows: tuple[int, ...], rates: Floats
) -> float:
    """Price kept and added machines at other predicted rates, at which the kept ones do more or fewer runs."""
    candidates = replace(rest, runs=replace(rest.runs, done_elsewhere_per_month=0.0))
    uses, _ = _assign_runs(candidates, pools, rates)
    runs = replace(rest.runs, done_elsewhere_per_month=_total_runs_per_month(candidates, uses))
    repriced = replace(rest, runs=runs)
    speeds = rates[rest.row[list(rows)]]
    kept_usd = sum(use.usd for use in uses)
    if runs.total <= 0 and added.owned_way is None and added.way not in COMMITTED:
        return kept_usd
    if added.rest is not None:
        base, rented = rows
        return kept_usd + reprice_mix(
            repriced, base, rented, float(added.clusters), (float(speeds[0]), float(speeds[1]))
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        return kept_usd + float(repriced.price(np.array(rows), speeds).total_usd[0])
