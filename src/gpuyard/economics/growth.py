"""When to buy the next machine as a team grows: when renting its share of the work costs more."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH, Array
from gpuyard.errors import UserMistake

_MAX_MACHINES = 10_000
_MAX_INPUT = 1e9  # people or GPU-hours; growth from far more overflows
_TIE = 1e-9  # costs within this relative difference are equal


@dataclass(frozen=True)
class Growth:
    """The demand of a team over time."""

    people: float
    hires_per_year: float
    gpu_hours_per_person_month: float
    demand_growth_per_year: float = 0.0  # of one person; 0.5: half as much again each year
    months: int = 36

    def __post_init__(self) -> None:
        for what, value in (
            ("people", self.people),
            ("hires per year", self.hires_per_year),
            ("GPU-hours per person and month", self.gpu_hours_per_person_month),
        ):
            if not 0 <= value <= _MAX_INPUT:
                raise UserMistake(f"{what} must be between 0 and {_MAX_INPUT:,.0f}, got {value:g}")
        if not -1 < self.demand_growth_per_year <= 100:
            raise UserMistake("the growth of demand must be above -100% per year")
        if not 1 <= self.months <= 600:
            raise UserMistake(f"expected a horizon of 1 to 600 months, got {self.months}")

    def people_by_month(self) -> Array:
        """Return the whole number of people at the start of each month."""
        months = np.arange(self.months)
        return np.floor(self.people + self.hires_per_year * months / 12 + 1e-9)

    def gpu_hours_by_month(self) -> Array:
        growth = (1 + self.demand_growth_per_year) ** (np.arange(self.months) / 12)
        return self.people_by_month() * self.gpu_hours_per_person_month * growth


@dataclass(frozen=True)
class NextMachine:
    """The next machine to buy: its size and cost, and the cost of renting the same work."""

    gpus: int
    price_usd: float
    running_usd_per_month: float
    rent_usd_per_gpu_hour: float
    usable_share: float = 0.7  # of its hours that people can fill
    price_change_per_year: float = 0.0  # -0.2: a fifth cheaper each year
    value_kept_per_year: float = 0.0
    budget_usd_per_year: float | None = None  # unused budget does not carry over
    discount_per_year: float = 0.0  # totals are present values

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise UserMistake(f"expected at least one GPU in a machine, got {self.gpus}")
        for what, value in (
            ("the price", self.price_usd),
            ("the running cost", self.running_usd_per_month),
            ("the rent", self.rent_usd_per_gpu_hour),
            ("the discount rate", self.discount_per_year),
            ("the budget", self.budget_usd_per_year or 0.0),
        ):
            if not (np.isfinite(value) and value >= 0):
                raise UserMistake(f"{what} must be zero or more, got {value:g}")
        if not 0 < self.usable_share <= 1:
            raise UserMistake("the usable share must be above 0% and at most 100%")
        if not 0 <= self.value_kept_per_year <= 1 or self.price_change_per_year <= -1:
            raise UserMistake(
                "the value kept must be 0% to 100%, and prices must fall by less than 100%"
            )

    @property
    def gpu_hours_per_month(self) -> float:
        return self.gpus * HOURS_PER_MONTH * self.usable_share


@dataclass(frozen=True)
class Purchase:
    """One machine, the month in which to buy it, and the figures behind that choice."""

    number: int
    month: int
    price_usd: float
    people: int
    demand_gpu_hours: float  # in that month
    saves_usd: float  # over the horizon, compared with renting the same work


@dataclass(frozen=True)
class GrowthPlan:
    """The purchases over the horizon, and the total cost."""

    purchases: tuple[Purchase, ...]
    people: tuple[int, ...]
    demand_gpu_hours: tuple[float, ...]
    owned_gpu_hours: tuple[float, ...]
    total_usd: float
    rent_all_usd: float
    held_back_by_budget: int  # machines that the budget delays or prevents


def plan_growth(growth: Growth, machine: NextMachine) -> GrowthPlan:
    """Buy each machine in its cheapest month; exact without a budget.

    The n-th machine serves the demand beyond the first n − 1, so each is decided separately: rent its part until
    month t, then pay the price of that month and the running cost, minus the resale at the end. Among equally
    cheap months, the last one wins. If later machines need a later year's budget, the last one of the first such
    year wins.
    """
    latest = _buy_in_order(growth, machine, spend_early=False)
    if not latest.held_back_by_budget:
        return latest
    early = _buy_in_order(growth, machine, spend_early=True)
    return early if early.total_usd < latest.total_usd * (1 - _TIE) else latest


def _buy_in_order(growth: Growth, machine: NextMachine, *, spend_early: bool) -> GrowthPlan:
    demand, capacity = growth.gpu_hours_by_month(), machine.gpu_hours_per_month
    if demand.max() > capacity * _MAX_MACHINES:
        raise UserMistake(
            f"the demand needs more than {_MAX_MACHINES:,} machines; choose a larger machine"
        )
    months = np.arange(growth.months)
    prices = machine.price_usd * (1 + machine.price_change_per_year) ** (months / 12)
    budget = _Budget(machine.budget_usd_per_year, growth.months)
    purchases: list[Purchase] = []
    owned = np.zeros(growth.months)
    worth = (1 + machine.discount_per_year) ** (-(months + 1) / 12)  # paid at a month's end
    rent_all = float((demand * worth).sum()) * machine.rent_usd_per_gpu_hour
    total, late, earliest = 0.0, 0, 0
    for number in range(1, int(np.ceil(demand.max() / capacity)) + 1):
        part = np.clip(demand - (number - 1) * capacity, 0.0, capacity)
        costs = _cost_by_month(part, prices, machine)
        rented = float((part * worth).sum()) * machine.rent_usd_per_gpu_hour
        best = int(np.argmin(costs))
        allowed = budget.affords(prices) & (months >= earliest)
        choice = _cheapest(np.where(allowed, costs, np.inf), spend_early=spend_early)
        worthwhile = costs[best] < rented
        if not (allowed[choice] and costs[choice] < rented):
            late += worthwhile
            total += rented
            continue
        late += worthwhile and costs[choice] > costs[best] + _TIE * rented
        budget.spend(choice, float(prices[choice]))
        earliest = choice
        total += float(costs[choice])
        owned[choice:] += capacity
        purchases.append(
            Purchase(
                number, choice, float(prices[choice]), int(growth.people_by_month()[choice]),
                float(demand[choice]), rented - float(costs[choice]),
            )
        )  # fmt: skip
    return GrowthPlan(
        purchases=tuple(purchases),
        people=tuple(int(count) for count in growth.people_by_month()),
        demand_gpu_hours=tuple(demand.tolist()),
        owned_gpu_hours=tuple(owned.tolist()),
        total_usd=total,
        rent_all_usd=rent_all,
        held_back_by_budget=int(late),
    )


def _cheapest(costs: Array, *, spend_early: bool) -> int:
    least = costs.min()
    ties = np.flatnonzero(costs <= least + _TIE * abs(least))
    return int(ties[ties // 12 == ties[0] // 12][-1] if spend_early else ties[-1])


def _cost_by_month(part: Array, prices: Array, machine: NextMachine) -> Array:
    """Return the cost of this machine's part of the demand over the horizon, by month of purchase."""
    end = part.size
    # present value of a dollar at the start of each month; the last is the end of the horizon
    worth = (1 + machine.discount_per_year) ** (-np.arange(end + 1) / 12)
    rented = np.concatenate([[0.0], np.cumsum(part * worth[1:])])
    months_held = np.concatenate([[0.0], np.cumsum(worth[1:])])
    rent = rented[:-1] * machine.rent_usd_per_gpu_hour
    running = (months_held[-1] - months_held[:-1]) * machine.running_usd_per_month
    resale = prices * machine.value_kept_per_year ** ((end - np.arange(end)) / 12) * worth[-1]
    return np.asarray(rent + prices * worth[:-1] + running - resale)


class _Budget:
    """The remaining budget for machines in each year."""

    def __init__(self, usd_per_year: float | None, months: int) -> None:
        years = -(-months // 12)
        self._remaining = np.full(years, np.inf if usd_per_year is None else usd_per_year)
        self._year = np.arange(months) // 12

    def affords(self, prices: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(self._remaining[self._year] >= prices - 1e-9)

    def spend(self, month: int, usd: float) -> None:
        self._remaining[month // 12] -= usd
