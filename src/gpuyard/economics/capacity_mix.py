"""The cheapest mix of several kinds of capacity (owned, reserved, …) with the rest on demand: a
mixed-integer program over the distinct levels of a demand, solved by HiGHS through scipy."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_YEAR, Array
from gpuyard.economics.demand import Demand
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.quiet import quiet

MOST_LEVELS = 2000  # distinct levels of demand in one program; more are merged into these


@dataclass(frozen=True)
class CapacityTier:
    """One kind of capacity. Prices are for one GPU and hour."""

    name: str
    held_usd: float  # each hour that it is held, used or not
    used_usd: float = 0.0  # each hour that it is used, on top
    gpus_each: int = 1  # it comes in machines of so many GPUs
    most_gpus: float = float("inf")


@dataclass(frozen=True)
class TierShare:
    """How much of one tier to hold, and what it does."""

    name: str
    gpus: float
    usd_per_year: float
    share: float  # of all GPU-hours


@dataclass(frozen=True)
class CapacityMix:
    """The cheapest mix."""

    tiers: tuple[TierShare, ...]  # the last is on demand
    usd_per_year: float
    exact: bool  # no levels of demand were merged


def best_mix(demand: Demand, tiers: tuple[CapacityTier, ...], on_demand_usd: float) -> CapacityMix:
    """What to hold of each tier. Whole machines; the program's gap is zero."""
    if not on_demand_usd >= 0:
        raise UserMistake("the price on demand must be zero or more")
    for tier in tiers:
        if not (tier.held_usd >= 0 and tier.used_usd >= 0 and tier.gpus_each >= 1):
            raise UserMistake(
                f"{tier.name}: prices must be zero or more, and a machine has at least one GPU"
            )
    levels, weights, exact = _levels(demand.gpus)
    machines = _solve(levels, weights, tiers, on_demand_usd)
    gpus = [count * tier.gpus_each for count, tier in zip(machines, tiers, strict=True)]
    return _dispatch(demand, tiers, gpus, on_demand_usd, exact)


def _solve(
    levels: Array, weights: Array, tiers: tuple[CapacityTier, ...], on_demand_usd: float
) -> list[int]:
    try:
        from scipy import sparse
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError:
        raise MissingRequirement(
            "a mix with more than two kinds of capacity needs scipy; get it with: "
            "pip install 'gpuyard[plan]'"
        ) from None

    kinds, count = len(tiers), levels.size
    # columns: machines of each tier, then GPUs used of each tier at each level; the rest is on demand
    usage = kinds * count
    per_hour = [tier.held_usd * tier.gpus_each for tier in tiers]
    saved = [np.full(count, tier.used_usd - on_demand_usd) * weights for tier in tiers]
    costs = np.concatenate([per_hour, *saved])
    one_each = sparse.identity(count, format="csr")
    # used ≤ held, for each tier and level
    held = sparse.block_diag([np.full((count, 1), -tier.gpus_each) for tier in tiers])
    within = sparse.hstack([held, sparse.identity(usage)])
    # used together ≤ wanted, for each level
    together = sparse.hstack([sparse.csr_matrix((count, kinds)), *[one_each] * kinds])
    most = [
        np.floor(min(tier.most_gpus, levels.max() + tier.gpus_each) / tier.gpus_each)
        for tier in tiers
    ]
    with quiet():
        found = milp(
            costs,
            constraints=[LinearConstraint(within, ub=0.0), LinearConstraint(together, ub=levels)],
            integrality=np.concatenate([np.ones(kinds), np.zeros(usage)]),
            bounds=Bounds(0.0, np.concatenate([most, np.full(usage, np.inf)])),
            options={"mip_rel_gap": 0.0},
        )
    if found.x is None:
        raise GpuyardError(f"HiGHS found no mix: {found.message}")
    return [round(value) for value in found.x[:kinds]]


def _levels(gpus: Array) -> tuple[Array, Array, bool]:
    """Distinct levels and the share of time at each; merged by their mean where there are too many."""
    levels, counts = np.unique(gpus, return_counts=True)
    if levels.size <= MOST_LEVELS:
        return levels, counts / gpus.size, True
    edges = np.linspace(0, gpus.size, MOST_LEVELS + 1).astype(int)
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
    """Cost on the whole demand: what is cheapest to use is used first."""
    left, wanted = demand.gpus, float(demand.gpus.mean())
    served = dict.fromkeys(range(len(tiers)), 0.0)
    for index in sorted(served, key=lambda i: tiers[i].used_usd):
        if tiers[index].used_usd > on_demand_usd:
            continue
        used = np.minimum(left, gpus[index])
        served[index] = float(used.mean())
        left = left - used
    shares = [
        TierShare(
            tier.name,
            float(gpus[i]),
            (tier.held_usd * gpus[i] + tier.used_usd * served[i]) * HOURS_PER_YEAR,
            served[i] / wanted if wanted else 0.0,
        )
        for i, tier in enumerate(tiers)
    ]
    rest = float(left.mean())
    shares.append(
        TierShare(
            "on demand",
            float(left.max()),
            rest * on_demand_usd * HOURS_PER_YEAR,
            rest / wanted if wanted else 0.0,
        )
    )
    return CapacityMix(tuple(shares), sum(share.usd_per_year for share in shares), exact)
