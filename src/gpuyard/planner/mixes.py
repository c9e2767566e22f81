"""Owning a base and renting the rest: for every machine that could be bought, how many of it to own for the
plan's runs, by the exact rule of economics, with the rest of the runs on the cheapest that is rented."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import best_owned_size, cost_of_size, owned_usd
from gpuyard.planner.candidates import Candidates, Truths
from gpuyard.planner.costs import owned_machines
from gpuyard.planner.offers import OWNED
from gpuyard.planner.ranking import DATA_STAYS, Ranking, plainest_of, same_machines
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs.plan import Acquisition

MIXING_SAVES_NOTHING = "A mix saves nothing: it is cheapest to own enough for all runs, or none."
_BY_USE: tuple[Acquisition, ...] = ("on-demand", "spot")


@dataclass(frozen=True)
class Mixes:
    """One entry a mix. `base` and `rest` are rows of the candidates."""

    base: Integers
    rest: Integers
    owned: Floats  # clusters of the base's nodes
    own_all: Floats  # clusters that would do all runs
    owned_share: Floats  # of the runs
    utilisation: Floats  # of what is owned
    run_seconds: Floats  # of the slower of both
    total_usd: Floats
    usd_per_run: Floats
    in_time: Truths
    in_budget: Truths

    def __len__(self) -> int:
        return len(self.base)

    @property
    def mixed(self) -> Truths:
        """Some are owned and something is rented; the others are no mix."""
        return (self.owned > 0) & (self.owned < self.own_all)

    def cheapest(self, among: Truths) -> int | None:
        chosen = np.flatnonzero(among)
        return int(chosen[np.argmin(self.usd_per_run[chosen])]) if len(chosen) else None


def find_mixes(candidates: Candidates, ranking: Ranking) -> Mixes:
    """The best size of every base; none where the plan does not ask for it or nothing can be rented.

    Of some machines it is best to own enough for all runs, or none: those are no mixes.
    """
    base, rest = bases(candidates, ranking), _rests(candidates, ranking)
    if "hybrid" not in candidates.plan.search.ways or not len(base) or not len(rest):
        return solve(candidates, base[:0], rest[:0])
    seconds = candidates.costs.run_seconds
    usd = candidates.costs.usd_per_run
    # with the cheapest rest in time, and with the cheapest that is no slower than the base
    limit = candidates.plan.time_per_run
    late = np.zeros(len(rest), dtype=bool) if limit is None else seconds[rest] > limit
    cheapest = rest[np.lexsort((usd[rest], late))[0]]
    by_time = rest[np.argsort(seconds[rest], kind="stable")]
    best_so_far = _first_of_lowest(usd[by_time])
    slower = np.searchsorted(seconds[by_time], seconds[base], side="right")
    as_fast = by_time[best_so_far[np.maximum(slower - 1, 0)]]
    pairs = (slower > 0) & (as_fast != cheapest)
    return solve(
        candidates,
        np.concatenate([base, base[pairs]]),
        np.concatenate([np.full(len(base), cheapest), as_fast[pairs]]),
    )


def no_mix(candidates: Candidates, mixes: Mixes) -> str:
    """Why there is none."""
    plan = candidates.plan
    if plan.policy.data_stays:
        return f"Ruled out: {DATA_STAYS}, so nothing can be rented in addition to owned machines."
    if not len(mixes):
        return "Ruled out: no option is allowed that is bought, or none that is rented by the hour."
    return MIXING_SAVES_NOTHING


def solve(candidates: Candidates, base: Integers, rest: Integers, *, forced: bool = False) -> Mixes:
    """The best number of clusters to own of each base with its rest; if forced, some and not all."""
    plan, costs = candidates.plan, candidates.costs
    prices = _Prices.of(candidates, base, rest, costs.run_seconds[base] / 3600)
    wanted = candidates.runs.per_month
    most = _most(candidates, base)
    if forced:
        most = np.minimum(most, np.ceil(wanted.max() * prices.scale - 1e-9) - 1)
    size = best_owned_size(wanted, **vars(prices), least=float(forced), most=most)
    total = size.usd_per_hour * _hours(candidates)
    waits = np.where(size.rented > 0, costs.run_seconds[rest], 0.0)
    seconds = np.maximum(costs.run_seconds[base], waits)
    everyone = np.ones(len(base), dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = np.where(size.own > 0, size.served * plan.owning.busy_at_most / size.own, 0.0)
    return Mixes(
        base=base,
        rest=rest,
        owned=size.own,
        own_all=size.own_all,
        owned_share=size.served / (size.served + size.rented),
        utilisation=busy,
        run_seconds=seconds,
        total_usd=total,
        usd_per_run=total / candidates.runs.total,
        in_time=everyone if plan.time_per_run is None else seconds <= plan.time_per_run,
        in_budget=everyone if plan.budget is None else total <= plan.budget,
    )


def plainest_mix(
    candidates: Candidates,
    ranking: Ranking,
    mixes: Mixes,
    chosen: int,
    at_most_usd: float = np.inf,
) -> Mixes:
    """The same machines, owned and rented, in the plainest settings that are hardly worse, in which a run costs
    `at_most_usd`."""
    as_found = solve(candidates, mixes.base[[chosen]], mixes.rest[[chosen]])
    costs = candidates.costs
    rest = same_machines(candidates, int(mixes.rest[chosen]))
    rest = rest[(ranking.allowed & (ranking.in_time | ~mixes.in_time[chosen]))[rest]]
    plain_rest = plainest_of(
        candidates, rest, costs.usd_per_run[rest], costs.run_seconds[rest],
        int(np.searchsorted(rest, mixes.rest[chosen])),
    )  # fmt: skip
    base = same_machines(candidates, int(mixes.base[chosen]))
    base = base[~ranking.impossible[base]]
    tried = solve(candidates, base, np.full(len(base), plain_rest))
    meets = np.ones(len(base), dtype=bool)
    if mixes.in_time[chosen]:
        meets &= tried.in_time
    if mixes.in_budget[chosen]:
        meets &= tried.in_budget
    meets &= tried.usd_per_run <= at_most_usd
    among = np.flatnonzero(tried.mixed & meets)
    best = int(np.searchsorted(base, mixes.base[chosen]))
    if best not in among:
        return as_found
    plain = plainest_of(
        candidates, base[among], tried.usd_per_run[among], tried.run_seconds[among],
        int(np.searchsorted(among, best)),
    )  # fmt: skip
    return solve(candidates, np.array([plain]), np.array([plain_rest]))


def repriced_usd(
    candidates: Candidates, base: int, rest: int, owned: float, speeds: tuple[float, float]
) -> float:
    """All that a mix costs if base and rest went through so many samples a second."""
    at, other = np.array([base]), np.array([rest])
    base_hours = candidates.run_hours(np.array([speeds[0]]))
    prices = _Prices.of(
        candidates, at, other, base_hours, candidates.priced(other, np.array([speeds[1]])).usd_per_run
    )  # fmt: skip
    wanted = np.sort(candidates.runs.per_month)
    everything = np.ceil(wanted[-1] * prices.scale - 1e-9)
    size = cost_of_size(wanted, np.array([owned]), everything, **vars(prices))
    return float(size.usd_per_hour[0]) * _hours(candidates)


@dataclass(frozen=True)
class _Prices:
    """Of one cluster and hour, as the solver takes them; `scale` makes clusters of runs a month."""

    owned_usd: Floats
    running_usd: Floats
    rented_usd: Floats
    renting_usd: Floats
    scale: Floats

    @staticmethod
    def of(
        candidates: Candidates,
        base: Integers,
        rest: Integers,
        run_hours: Floats,
        rest_usd: Floats | None = None,
    ) -> "_Prices":
        hours, busy = _hours(candidates), candidates.plan.owning.busy_at_most
        idle, full = (_one_cluster_usd(candidates, base, run_hours, share) for share in (0.0, 1.0))
        usd = candidates.costs.usd_per_run[rest] if rest_usd is None else rest_usd
        keeping = candidates.columns.keeping_usd[candidates.offer[rest]]
        return _Prices(
            owned_usd=idle / hours,
            running_usd=busy * (full - idle) / hours,
            rented_usd=busy * (usd - keeping / candidates.runs.total) / run_hours,
            renting_usd=keeping / hours,
            scale=run_hours / (HOURS_PER_MONTH * busy),
        )


def _hours(candidates: Candidates) -> float:
    return candidates.runs.months * HOURS_PER_MONTH


def _one_cluster_usd(
    candidates: Candidates, base: Integers, run_hours: Floats, utilisation: float
) -> Floats:
    """What one cluster of each base costs over the horizon."""
    found = np.zeros(len(base))
    years = candidates.runs.years
    for acquisition in OWNED:
        chosen = np.flatnonzero(candidates.acquired_by(acquisition)[base])
        rows = candidates.rows(base[chosen], run_hours[chosen])
        owned = owned_machines(
            candidates.plan, candidates.premises, rows, acquisition,
            clusters=1.0, utilisation=utilisation, years=years,
        )  # fmt: skip
        found[chosen] = owned_usd(owned, years)
    return found


def _most(candidates: Candidates, base: Integers) -> Floats:
    """How many clusters the premises can feed."""
    limit = candidates.premises.power
    nodes = candidates.throughputs.nodes[candidates.row[base]]
    housed: Floats = np.floor(candidates.most_machines[base] / nodes)
    if limit is None:
        return housed
    watts = candidates.columns.watts[candidates.offer[base]] * nodes
    here = candidates.acquired_by(limit.acquisition)[base]
    with np.errstate(divide="ignore"):
        fed = np.where(here & (watts > 0), np.floor(limit.watts / watts), np.inf)
    return np.minimum(fed, housed)


def bases(candidates: Candidates, ranking: Ranking) -> Integers:
    """Owned candidates that fewer of the same machines could make allowed. Of the settings of the same
    machines only the fastest: they cost the same, and it does the most runs."""
    rows = np.flatnonzero(candidates.acquired_by(*OWNED) & ~ranking.impossible)
    nodes = candidates.throughputs.nodes[candidates.row[rows]].astype(np.int64)
    machines = candidates.offer[rows] * (int(nodes.max(initial=0)) + 1) + nodes
    order = np.lexsort((candidates.costs.run_seconds[rows], machines))
    _, first = np.unique(machines[order], return_index=True)
    return rows[order[first]]


def _rests(candidates: Candidates, ranking: Ranking) -> Integers:
    return np.flatnonzero(candidates.acquired_by(*_BY_USE) & ranking.allowed)


def _first_of_lowest(values: Floats) -> Integers:
    """For every position, where the lowest value up to it stands."""
    lowest = np.minimum.accumulate(values)
    new = np.concatenate([[True], lowest[1:] < lowest[:-1]])
    found: Integers = np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
    return found
