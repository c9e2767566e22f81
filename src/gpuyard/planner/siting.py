"""The same bought machines on premises and in a colocation, side by side."""

import numpy as np

from gpuyard.economics.amounts import HOURS_PER_MONTH
from gpuyard.economics.ownership import monthly_parts_usd, owned_usd
from gpuyard.facility.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.costs import owned_machines
from gpuyard.planner.offers import OWNED
from gpuyard.planner.ranking import DATA_STAYS, Ranking, Truths
from gpuyard.planner.result import Choice, Siting
from gpuyard.specs.plan import Acquisition


def sitings(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, row: int | None
) -> tuple[Siting, ...]:
    """Of the machines that the choice buys, which stand in `row`; where it buys none, of the cheapest
    that could be bought."""
    clusters, busy = None, None
    if winner is not None and winner.owned_way is not None:
        clusters, busy = float(winner.clusters), winner.utilisation
    if row is None or not _is_bought(candidates)[candidates.offer[row]]:
        row = _cheapest(candidates, ranking)
    if row is None:
        return ()
    if clusters is None or busy is None:
        costs = candidates.costs
        clusters, busy = float(costs.clusters[row]), float(costs.utilisation[row])
    return tuple(_siting(candidates, row, acquisition, clusters, busy) for acquisition in OWNED)


def _is_bought(candidates: Candidates) -> Truths:
    acquisitions = candidates.plan.search.ways
    codes = [
        acquisitions.index(acquisition) for acquisition in OWNED if acquisition in acquisitions
    ]
    return np.isin(candidates.columns.acquisition, codes)


def _cheapest(candidates: Candidates, ranking: Ranking) -> int | None:
    rows = np.flatnonzero(
        _is_bought(candidates)[candidates.offer] & ranking.allowed & ranking.in_time
    )
    return int(rows[np.argmin(candidates.costs.usd_per_run[rows])]) if len(rows) else None


def _siting(
    candidates: Candidates, row: int, acquisition: Acquisition, clusters: float, busy: float
) -> Siting:
    plan, runs, premises = candidates.plan, candidates.runs, candidates.premises
    at = np.array([row])
    hours = candidates.costs.run_seconds[at] / 3600
    owned = owned_machines(
        plan, premises, candidates.rows(at, hours), acquisition,
        clusters=clusters, utilisation=busy, years=runs.years,
    )  # fmt: skip
    parts, total = monthly_parts_usd(owned), float(owned_usd(owned, runs.years)[0])
    terms = premises.terms(acquisition)
    watts = float(np.asarray(owned.watts)[0])
    one_machine = float(candidates.columns.watts[candidates.offer[row]])
    build = terms.build_usd_per_kw
    broken = []
    for limit, drawn in ((premises.power, watts), (premises.rack, one_machine)):
        if limit is not None and limit.way == acquisition and drawn > limit.watts:
            broken.append(limit.reason)
    if acquisition == "colocate" and plan.policy.data_stays:
        broken.append(DATA_STAYS)
    runs_done = busy * clusters * runs.months * HOURS_PER_MONTH / float(hours[0])
    return Siting(
        way=acquisition,
        where=terms.way,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
        energy_usd_per_month=float(parts["power"][0]),
        rent_usd_per_month=float(np.broadcast_to(parts["colocation"], 1)[0]),
        build_usd_per_month=None if build is None else build * watts / 1000 / (BUILD_YEARS * 12),
        total_usd=total,
        usd_per_run=total / runs_done,
        broken_rules=tuple(broken),
    )
