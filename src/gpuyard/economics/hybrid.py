"""How many GPUs to own, with the rest rented: the exact optimum for a demand, and the cost of being wrong.

Owning one more GPU pays while it would be busy often enough. That is the newsvendor's rule: own the
quantile `1 − owned / (rented − running)` of the demand.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_YEAR
from gpuyard.economics.demand import Demand
from gpuyard.economics.ownership import best_owned_size, critical_share
from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class HybridPrices:
    """Dollars for one GPU and hour."""

    owned_usd: float  # each hour that it is owned, used or not
    rented_usd: float  # each hour that it is rented
    running_usd: float = 0.0  # each hour that an owned one is used: the power above idle

    def __post_init__(self) -> None:
        for what, usd in (("owning", self.owned_usd), ("renting", self.rented_usd),
                          ("running", self.running_usd)):  # fmt: skip
            if not (np.isfinite(usd) and usd >= 0):
                raise UserMistake(f"the price of {what} a GPU must be zero or more, got {usd:g}")


@dataclass(frozen=True)
class Mix:
    """So many GPUs owned, and what a year then costs."""

    own_gpus: float
    usd_per_year: float
    owned_share: float  # of all GPU-hours
    utilisation: float  # of the owned GPUs


@dataclass(frozen=True)
class WrongForecast:
    """The demand turns out other than thought, with the GPUs owned as decided."""

    demand_factor: float
    usd_per_year: float
    best_own_gpus: float  # had one known
    best_usd_per_year: float

    @property
    def regret_usd_per_year(self) -> float:
        return self.usd_per_year - self.best_usd_per_year


@dataclass(frozen=True)
class Hybrid:
    """The best size to own, and what it is compared with."""

    best: Mix
    rent_all: Mix
    own_all: Mix  # enough for the peak
    quantile: float  # of the demand that is owned
    if_wrong: tuple[WrongForecast, ...]


def best_hybrid(
    demand: Demand, prices: HybridPrices, *, gpus_per_machine: int = 1, error: float = 0.3
) -> Hybrid:
    """The cheapest number of whole machines to own; exact."""
    if gpus_per_machine < 1:
        raise UserMistake(f"expected at least one GPU in a machine, got {gpus_per_machine}")
    if not 0 <= error < 1:
        raise UserMistake("the error of the demand must be at least 0 % and below 100 %")
    best = _best(demand, prices, gpus_per_machine)
    wrong = []
    for factor in (1 - error, 1 + error):
        real = demand.times(factor)
        known = _best(real, prices, gpus_per_machine)
        kept = mix_of(real, prices, best.own_gpus)
        wrong.append(WrongForecast(factor, kept.usd_per_year, known.own_gpus, known.usd_per_year))
    peak = _whole(float(demand.gpus.max()), gpus_per_machine)
    return Hybrid(
        best=best,
        rent_all=mix_of(demand, prices, 0.0),
        own_all=mix_of(demand, prices, peak),
        quantile=float(critical_share(prices.owned_usd, prices.rented_usd, prices.running_usd)),
        if_wrong=tuple(wrong),
    )


def mix_of(demand: Demand, prices: HybridPrices, own_gpus: float) -> Mix:
    """What a year costs with so many GPUs owned."""
    served = float(np.minimum(demand.gpus, own_gpus).mean())
    wanted = float(demand.gpus.mean())
    hourly = (
        prices.owned_usd * own_gpus
        + prices.running_usd * served
        + prices.rented_usd * max(wanted - served, 0.0)
    )
    return Mix(
        own_gpus=own_gpus,
        usd_per_year=hourly * HOURS_PER_YEAR,
        owned_share=served / wanted if wanted else 0.0,
        utilisation=served / own_gpus if own_gpus else 0.0,
    )


def _best(demand: Demand, prices: HybridPrices, gpus_per_machine: int) -> Mix:
    size = best_owned_size(
        demand.gpus,
        owned_usd=prices.owned_usd,
        rented_usd=prices.rented_usd,
        running_usd=prices.running_usd,
        each=float(gpus_per_machine),
    )
    return mix_of(demand, prices, float(size.own))


def _whole(gpus: float, gpus_per_machine: int) -> float:
    return float(np.ceil(gpus / gpus_per_machine - 1e-9) * gpus_per_machine)
