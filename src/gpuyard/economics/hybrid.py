"""The number of GPUs to own if the rest is rented: the exact optimum, and the cost of a wrong forecast.

Owning one more GPU pays if it is busy often enough. The optimum follows the newsvendor rule: own the quantile
`1 − owned / (rented − running)` of the demand.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_YEAR
from gpuyard.economics.demand import Demand
from gpuyard.economics.ownership import best_owned_size, critical_share
from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class HybridPrices:
    """Prices in dollars per GPU and hour."""

    owned_usd: float  # for each hour of ownership, used or not
    rented_usd: float  # for each rented hour
    running_usd: float = 0.0  # added for each hour of use of an owned GPU: power above idle

    def __post_init__(self) -> None:
        for what, usd in (("owning", self.owned_usd), ("renting", self.rented_usd),
                          ("running", self.running_usd)):  # fmt: skip
            if not (np.isfinite(usd) and usd >= 0):
                raise UserMistake(f"the price of {what} a GPU must be zero or more, got {usd:g}")


@dataclass(frozen=True)
class Mix:
    """A number of owned GPUs, and the cost of a year."""

    own_gpus: float
    usd_per_year: float
    owned_share: float  # of all GPU-hours
    utilization: float  # of the owned GPUs


@dataclass(frozen=True)
class WrongForecast:
    """The result if the demand differs from the forecast, with the owned GPUs unchanged."""

    demand_factor: float
    usd_per_year: float
    best_own_gpus: float  # with a correct forecast
    best_usd_per_year: float

    @property
    def regret_usd_per_year(self) -> float:
        return self.usd_per_year - self.best_usd_per_year


@dataclass(frozen=True)
class Hybrid:
    """The best number of GPUs to own, and the alternatives."""

    best: Mix
    rent_all: Mix
    own_all: Mix  # enough for the peak
    quantile: float  # of the demand, up to which owning pays
    if_wrong: tuple[WrongForecast, ...]


def best_hybrid(
    demand: Demand, prices: HybridPrices, *, gpus_per_machine: int = 1, error: float = 0.3
) -> Hybrid:
    """Find the cheapest number of whole machines to own; the result is exact."""
    if gpus_per_machine < 1:
        raise UserMistake(f"expected at least one GPU in a machine, got {gpus_per_machine}")
    if not 0 <= error < 1:
        raise UserMistake("the demand error must be at least 0% and below 100%")
    best = _find_best(demand, prices, gpus_per_machine)
    wrong = []
    for factor in (1 - error, 1 + error):
        actual = demand.times(factor)
        optimum = _find_best(actual, prices, gpus_per_machine)
        kept = price_mix(actual, prices, best.own_gpus)
        wrong.append(
            WrongForecast(factor, kept.usd_per_year, optimum.own_gpus, optimum.usd_per_year)
        )
    peak = _round_up(float(demand.gpus.max()), gpus_per_machine)
    return Hybrid(
        best=best,
        rent_all=price_mix(demand, prices, 0.0),
        own_all=price_mix(demand, prices, peak),
        quantile=float(critical_share(prices.owned_usd, prices.rented_usd, prices.running_usd)),
        if_wrong=tuple(wrong),
    )


def price_mix(demand: Demand, prices: HybridPrices, own_gpus: float) -> Mix:
    """Return the cost of a year with this many owned GPUs."""
    served = float(np.minimum(demand.gpus, own_gpus).mean())
    mean_demand = float(demand.gpus.mean())
    hourly = (
        prices.owned_usd * own_gpus
        + prices.running_usd * served
        + prices.rented_usd * max(mean_demand - served, 0.0)
    )
    return Mix(
        own_gpus=own_gpus,
        usd_per_year=hourly * HOURS_PER_YEAR,
        owned_share=served / mean_demand if mean_demand else 0.0,
        utilization=served / own_gpus if own_gpus else 0.0,
    )


def _find_best(demand: Demand, prices: HybridPrices, gpus_per_machine: int) -> Mix:
    size = best_owned_size(
        demand.gpus,
        owned_usd=prices.owned_usd,
        rented_usd=prices.rented_usd,
        running_usd=prices.running_usd,
        each=float(gpus_per_machine),
    )
    return price_mix(demand, prices, float(size.own))


def _round_up(gpus: float, gpus_per_machine: int) -> float:
    return float(np.ceil(gpus / gpus_per_machine - 1e-9) * gpus_per_machine)
