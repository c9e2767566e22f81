"""Own a base and rent the rest.

For every machine that could be bought, this finds how many to own for the plan's runs, by the exact rule in
`gpuyard.economics`. The remaining runs are on the cheapest rented machine.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import best_owned_size, cost_of_size, owned_usd
from gpuyard.planner.candidates import Booleans, Candidates
from gpuyard.planner.costs import describe_owned_machines
from gpuyard.planner.offers import OWNED
from gpuyard.planner.ranking import DATA_STAYS, Ranking, find_same_machines, find_simplest
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs.plan_candidates import Acquisition

MIXING_SAVES_NOTHING = (
    "A mix saves nothing: it is cheapest to own enough machines for all runs, or none."
)
_RENTED_PER_RUN: tuple[Acquisition, ...] = ("on-demand", "spot")


@dataclass(frozen=True)
class Mixes:
    """All mixes, one entry per mix. `base` and `rest` are indices of candidates."""

    base: Integers
    rest: Integers
    owned: Floats  # clusters of the base
    own_all: Floats  # clusters that would do all runs
    owned_share: Floats  # of the runs
    utilization: Floats  # of the owned clusters
    run_seconds: Floats  # of the slower of the two
    total_usd: Floats
    usd_per_run: Floats
    in_time: Booleans
    in_budget: Booleans

    def __len__(self) -> int:
        return len(self.base)

    @property
    def mixed(self) -> Booleans:
        """Which entries own some machines and rent some; the others are not mixes."""
        return (self.owned > 0) & (self.owned < self.own_all)

    def cheapest(self, among: Booleans) -> int | None:
        chosen = np.flatnonzero(among)
        return int(chosen[np.argmin(self.usd_per_run[chosen])]) if len(chosen) else None


def find_mixes(candidates: Candidates, ranking: Ranking) -> Mixes:
    """Find the best size of every base; nothing if the plan excludes mixes or no machine can be rented.

    For some machines it is best to own enough for all runs, or none; `Mixes.mixed` excludes those.
    """
    base, rest = find_bases(candidates, ranking), _find_rests(candidates, ranking)
    if "hybrid" not in candidates.plan.search.ways or not len(base) or not len(rest):
        return solve_mixes(candidates, base[:0], rest[:0])
    seconds = candidates.costs.run_seconds
    usd = candidates.costs.usd_per_run
    # pair each base with the cheapest rest in time, and with the cheapest one that is no slower than the base
    limit = candidates.plan.time_per_run
    late = np.zeros(len(rest), dtype=bool) if limit is None else seconds[rest] > limit
    cheapest = rest[np.lexsort((usd[rest], late))[0]]
    by_time = rest[np.argsort(seconds[rest], kind="stable")]
    best_so_far = _running_argmin(usd[by_time])
    slower = np.searchsorted(seconds[by_time], seconds[base], side="right")
    as_fast = by_time[best_so_far[np.maximum(slower - 1, 0)]]
    pairs = (slower > 0) & (as_fast != cheapest)
    return solve_mixes(
        candidates,
        np.concatenate([base, base[pairs]]),
        np.concatenate([np.full(len(base), cheapest), as_fast[pairs]]),
    )


def explain_missing_mix(candidates: Candidates, mixes: Mixes) -> str:
    """Explain why there is no mix."""
    plan = candidates.plan
    if plan.policy.data_stays:
        return f"Ruled out: {DATA_STAYS}, so nothing can be rented in addition to owned machines."
    if not len(mixes):
        return "Ruled out: no bought option or no option rented by the hour is allowed."
    return MIXING_SAVES_NOTHING


def solve_mixes(
    candidates: Candidates, base: Integers, rest: Integers, *, forced: bool = False
) -> Mixes:
    """Find the best number of clusters to own for each base with its rest; if forced, some but not all."""
    plan, costs = candidates.plan, candidates.costs
    prices = _MixPrices.from_candidates(candidates, base, rest, costs.run_seconds[base] / 3600)
    demand = candidates.runs.per_month
    maximum = _max_clusters(candidates, base)
    if forced:
        maximum = np.minimum(maximum, np.ceil(demand.max() * prices.scale - 1e-9) - 1)
    size = best_owned_size(demand, **vars(prices), minimum=float(forced), maximum=maximum)
    total = size.usd_per_hour * _horizon_hours(candidates)
    rented_seconds = np.where(size.rented > 0, costs.run_seconds[rest], 0.0)
    seconds = np.maximum(costs.run_seconds[base], rented_seconds)
    all_true = np.ones(len(base), dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = np.where(size.own > 0, size.served * plan.owning.busy_at_most / size.own, 0.0)
    return Mixes(
        base=base,
        rest=rest,
        owned=size.own,
        own_all=size.own_all,
        owned_share=size.served / (size.served + size.rented),
        utilization=busy,
        run_seconds=seconds,
        total_usd=total,
        usd_per_run=total / candidates.runs.total,
        in_time=all_true if plan.time_per_run is None else seconds <= plan.time_per_run,
        in_budget=all_true if plan.budget is None else total <= plan.budget,
    )


def simplify_mix(
    candidates: Candidates,
    ranking: Ranking,
    mixes: Mixes,
    chosen: int,
    at_most_usd: float = np.inf,
) -> Mixes:
    """Return the same mix in the simplest settings within the tolerance that cost at most `at_most_usd` per run."""
    unchanged = solve_mixes(candidates, mixes.base[[chosen]], mixes.rest[[chosen]])
    costs = candidates.costs
    rest = find_same_machines(candidates, int(mixes.rest[chosen]))
    rest = rest[(ranking.allowed & (ranking.in_time | ~mixes.in_time[chosen]))[rest]]
    simple_rest = find_simplest(
        candidates, rest, costs.usd_per_run[rest], costs.run_seconds[rest],
        int(np.searchsorted(rest, mixes.rest[chosen])),
    )  # fmt: skip
    base = find_same_machines(candidates, int(mixes.base[chosen]))
    base = base[~ranking.impossible[base]]
    tried = solve_mixes(candidates, base, np.full(len(base), simple_rest))
    meets = np.ones(len(base), dtype=bool)
    if mixes.in_time[chosen]:
        meets &= tried.in_time
    if mixes.in_budget[chosen]:
        meets &= tried.in_budget
    meets &= tried.usd_per_run <= at_most_usd
    among = np.flatnonzero(tried.mixed & meets)
    best = int(np.searchsorted(base, mixes.base[chosen]))
    if best not in among:
        return unchanged
    simple_base = find_simplest(
        candidates, base[among], tried.usd_per_run[among], tried.run_seconds[among],
        int(np.searchsorted(among, best)),
    )  # fmt: skip
    return solve_mixes(candidates, np.array([simple_base]), np.array([simple_rest]))


def reprice_mix(
    candidates: Candidates, base: int, rest: int, owned: float, speeds: tuple[float, float]
) -> float:
    """Return the total cost of a mix at the given speeds of base and rest, in samples per second."""
    base_rows, rest_rows = np.array([base]), np.array([rest])
    base_hours = candidates.run_hours(np.array([speeds[0]]))
    rest_usd = candidates.price(rest_rows, np.array([speeds[1]])).usd_per_run
    prices = _MixPrices.from_candidates(candidates, base_rows, rest_rows, base_hours, rest_usd)
    demand = np.sort(candidates.runs.per_month)
    own_all = np.ceil(demand[-1] * prices.scale - 1e-9)
    size = cost_of_size(demand, np.array([owned]), own_all, **vars(prices))
    return float(size.usd_per_hour[0]) * _horizon_hours(candidates)


@dataclass(frozen=True)
class _MixPrices:
    """Prices per cluster and hour as the solver needs them; `scale` converts runs per month to clusters."""

    owned_usd: Floats
    running_usd: Floats
    rented_usd: Floats
    renting_usd: Floats
    scale: Floats

    @staticmethod
    def from_candidates(
        candidates: Candidates,
        base: Integers,
        rest: Integers,
        run_hours: Floats,
        rest_usd: Floats | None = None,
    ) -> "_MixPrices":
        hours, busy = _horizon_hours(candidates), candidates.plan.owning.busy_at_most
        idle, full = (_price_cluster(candidates, base, run_hours, share) for share in (0.0, 1.0))
        usd = candidates.costs.usd_per_run[rest] if rest_usd is None else rest_usd
        storage = candidates.columns.data_storage_usd[candidates.offer[rest]]
        return _MixPrices(
            owned_usd=idle / hours,
            running_usd=busy * (full - idle) / hours,
            rented_usd=busy * (usd - storage / candidates.runs.total) / run_hours,
            renting_usd=storage / hours,
            scale=run_hours / (HOURS_PER_MONTH * busy),
        )


def _horizon_hours(candidates: Candidates) -> float:
    return candidates.runs.months * HOURS_PER_MONTH


def _price_cluster(
    candidates: Candidates, base: Integers, run_hours: Floats, utilization: float
) -> Floats:
    """Price one cluster of each base over the horizon."""
    usd = np.zeros(len(base))
    years = candidates.runs.years
    for acquisition in OWNED:
        chosen = np.flatnonzero(candidates.acquired_by(acquisition)[base])
        rows = candidates.price_rows(base[chosen], run_hours[chosen])
        owned = describe_owned_machines(
            candidates.plan, candidates.premises, rows, acquisition,
            clusters=1.0, utilization=utilization, years=years,
        )  # fmt: skip
        usd[chosen] = owned_usd(owned, years)
    return usd


def _max_clusters(candidates: Candidates, base: Integers) -> Floats:
    """Return the number of clusters that are available and that the premises can house and power."""
    limit = candidates.premises.power
    nodes = candidates.throughputs.nodes[candidates.row[base]]
    housed: Floats = np.floor(candidates.max_machines[base] / nodes)
    if limit is None:
        return housed
    watts = candidates.columns.watts[candidates.offer[base]] * nodes
    limited = candidates.acquired_by(limit.acquisition)[base]
    with np.errstate(divide="ignore"):
        powered = np.where(limited & (watts > 0), np.floor(limit.watts / watts), np.inf)
    return np.minimum(powered, housed)


def find_bases(candidates: Candidates, ranking: Ranking) -> Integers:
    """Return owned candidates that are allowed in some number, each machine in its fastest setting.

    All settings of the same machines cost the same, and the fastest does the most runs.
    """
    rows = np.flatnonzero(candidates.acquired_by(*OWNED) & ~ranking.impossible)
    nodes = candidates.throughputs.nodes[candidates.row[rows]].astype(np.int64)
    machines = candidates.offer[rows] * (int(nodes.max(initial=0)) + 1) + nodes
    order = np.lexsort((candidates.costs.run_seconds[rows], machines))
    _, first = np.unique(machines[order], return_index=True)
    return rows[order[first]]


def _find_rests(candidates: Candidates, ranking: Ranking) -> Integers:
    return np.flatnonzero(candidates.acquired_by(*_RENTED_PER_RUN) & ranking.allowed)


def _running_argmin(values: Floats) -> Integers:
    """Return, for every position, the index of the lowest value up to it."""
    lowest = np.minimum.accumulate(values)
    is_new = np.concatenate([[True], lowest[1:] < lowest[:-1]])
    indices: Integers = np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))
    return indices
