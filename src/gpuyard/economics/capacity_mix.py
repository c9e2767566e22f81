"""The cheapest mix of owned, reserved, and on-demand capacity.

It is a mixed-integer program over the distinct levels of a demand, solved by HiGHS through SciPy.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_YEAR, Array
from gpuyard.economics.demand import Demand
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.stdout_redirect import silence_stdout

MAX_LEVELS = 2000  # distinct levels of demand in one program; more are merged


@dataclass(frozen=True)
class CapacityTier:
    """One kind of capacity. Prices are for one GPU and hour."""

    name: str
    held_usd: float  # per hour, used or not
    used_usd: float = 0.0  # added per hour of use
    gpus_per_machine: int = 1
    max_gpus: float = float("inf")


@dataclass(frozen=True)
class TierShare:
    """The size of one tier in a mix, its cost, and its share of the work."""

    name: str
    gpus: float
    usd_per_year: float
    share: float  # of all GPU-hours


@dataclass(frozen=True)
class CapacityMix:
    """The cheapest mix of tiers."""

    tiers: tuple[TierShare, ...]  # the last is on demand
    usd_per_year: float
    exact: bool  # whether no levels of demand were merged


def best_mix(demand: Demand, tiers: tuple[CapacityTier, ...], on_demand_usd: float) -> CapacityMix:
    """Return the optimal number of whole machines of each tier; the optimality gap is zero."""
    if not on_demand_usd >= 0:
        raise UserMistake("the on-demand price must be zero or more")
    for tier in tiers:
        if not (tier.held_usd >= 0 and tier.used_usd >= 0 and tier.gpus_per_machine >= 1):
            raise UserMistake(
                f"{tier.name}: prices must be zero or more, and a machine must have at least one GPU"
            )
    levels, weights, exact = _find_levels(demand.gpus)
    machines = _solve(levels, weights, tiers, on_demand_usd)
    gpus = [count * tier.gpus_per_machine for count, tier in zip(machines, tiers, strict=True)]
    return _dispatch(demand, tiers, gpus, on_demand_usd, exact)


def _solve(
    levels: Array, weights: Array, tiers: tuple[CapacityTier, ...], on_demand_usd: float
) -> list[int]:
    try:
        from scipy import sparse
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError:
        raise MissingRequirement(
            "a mix with more than two kinds of capacity needs SciPy: pip install 'gpuyard[plan]'"
        ) from None

    tier_count, level_count = len(tiers), levels.size
    # columns: machines of each tier, then GPUs used of each tier at each level; the rest is on demand
    usage_count = tier_count * level_count
    held_costs = [tier.held_usd * tier.gpus_per_machine for tier in tiers]
    usage_costs = [np.full(level_count, tier.used_usd - on_demand_usd) * weights for tier in tiers]
    costs = np.concatenate([held_costs, *usage_costs])
    identity = sparse.identity(level_count, format="csr")
    # used ≤ held, for each tier and level
    held = sparse.block_diag([np.full((level_count, 1), -tier.gpus_per_machine) for tier in tiers])
    within_held = sparse.hstack([held, sparse.identity(usage_count)])
    # total used ≤ demand, for each level
    within_demand = sparse.hstack(
        [sparse.csr_matrix((level_count, tier_count)), *[identity] * tier_count]
    )
    max_machines = [
        np.floor(min(tier.max_gpus, levels.max() + tier.gpus_per_machine) / tier.gpus_per_machine)
        for tier in tiers
    ]
    with silence_stdout():
        solution = milp(
            costs,
            constraints=[
                LinearConstraint(within_held, ub=0.0),
                LinearConstraint(within_demand, ub=levels),
            ],
            integrality=np.concatenate([np.ones(tier_count), np.zeros(usage_count)]),
            bounds=Bounds(0.0, np.concatenate([max_machines, np.full(usage_count, np.inf)])),
            options={"mip_rel_gap": 0.0},
        )
    if solution.x is None:
        raise GpuyardError(f"HiGHS found no mix: {solution.message}")
    return [round(value) for value in solution.x[:tier_count]]


def _find_levels(gpus: Array) -> tuple[Array, Array, bool]:
    """Return distinct levels and the share of time at each; merge them by mean if there are too many."""
    levels, counts = np.unique(gpus, return_counts=True)
    if levels.size <= MAX_LEVELS:
        return levels, counts / gpus.size, True
    edges = np.linspace(0, gpus.size, MAX_LEVELS + 1).astype(int)
    ordered = np.sort(gpus)
    sizes = np.diff(edges)
    return np.add.reduceat(ordered, edges[:-1]) / sizes, sizes / gpus.size, False


def _dispatch(
    demand: Demand,
    tiers: tuple[CapacityTier, ...],
    gpus: list[int],
    on_demand_usd: float,
    exact: bool,
) -> CapacityMix:
    """Serve the whole demand with the cheapest tier first and return the costs."""
    remaining, mean_demand = demand.gpus, float(demand.gpus.mean())
    served = dict.fromkeys(range(len(tiers)), 0.0)
    for index in sorted(served, key=lambda i: tiers[i].used_usd):
        if tiers[index].used_usd > on_demand_usd:
            continue
        used = np.minimum(remaining, gpus[index])
        served[index] = float(used.mean())
        remaining = remaining - used
    shares = [
        TierShare(
            tier.name,
            float(gpus[i]),
            (tier.held_usd * gpus[i] + tier.used_usd * served[i]) * HOURS_PER_YEAR,
            served[i] / mean_demand if mean_demand else 0.0,
        )
        for i, tier in enumerate(tiers)
    ]
    on_demand = float(remaining.mean())
    shares.append(
        TierShare(
            "on demand",
            float(remaining.max()),
            on_demand * on_demand_usd * HOURS_PER_YEAR,
            on_demand / mean_demand if mean_demand else 0.0,
        )
    )
    return CapacityMix(tuple(shares), sum(share.usd_per_year for share in shares), exact)
