"""When to buy the next machine, as a team and its demand grow: each machine waits until renting what it
would do costs more than it does."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH, Array
from gpuyard.errors import UserMistake

_MOST_MACHINES = 10_000
_MOST = 1e9  # people or GPU-hours; what grows from far more is too large for a number
_TIE = 1e-9  # costs that are this close are equal


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
            ("hires a year", self.hires_per_year),
            ("GPU-hours a person and month", self.gpu_hours_per_person_month),
        ):
            if not 0 <= value <= _MOST:
                raise UserMistake(f"{what} must be zero or more, up to {_MOST:,.0f}, got {value:g}")
        if not -1 < self.demand_growth_per_year <= 100:
            raise UserMistake("the growth of demand must be above -100 % a year")
        if not 1 <= self.months <= 600:
            raise UserMistake(f"expected a horizon of 1 to 600 months, got {self.months}")

    def people_by_month(self) -> Array:
        """Whole people at the start of each month: nobody is hired in part."""
        months = np.arange(self.months)
        return np.floor(self.people + self.hires_per_year * months / 12 + 1e-9)

    def gpu_hours_by_month(self) -> Array:
        growth = (1 + self.demand_growth_per_year) ** (np.arange(self.months) / 12)
        return self.people_by_month() * self.gpu_hours_per_person_month * growth


@dataclass(frozen=True)
class NextMachine:
    """What one more machine is and costs, and what renting its work would."""

    gpus: int
    price_usd: float
    running_usd_per_month: float
    rent_usd_per_gpu_hour: float
    usable_share: float = 0.7  # of its hours that people can fill
    price_change_per_year: float = 0.0  # -0.2: a fifth cheaper each year
    value_kept_per_year: float = 0.0
    budget_usd_per_year: float | None = None  # what is left of a year's is gone
    discount_per_year: float = 0.0  # what money is worth: totals are in today's

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
            raise UserMistake("the usable share must be above 0 % and at most 100 %")
        if not 0 <= self.value_kept_per_year <= 1 or self.price_change_per_year <= -1:
            raise UserMistake(
                "the value kept must be 0 % to 100 %, and prices must fall by less than 100 %"
            )

    @property
    def gpu_hours_per_month(self) -> float:
        return self.gpus * HOURS_PER_MONTH * self.usable_share


@dataclass(frozen=True)
class Purchase:
    """One machine, the month to buy it at the start of, and why then."""

    number: int
    month: int
    price_usd: float
    people: int
    demand_gpu_hours: float  # in that month
    saves_usd: float  # over the horizon, against renting what it does


@dataclass(frozen=True)
class GrowthPlan:
    """What to buy when, and what the whole horizon costs."""

    purchases: tuple[Purchase, ...]
    people: tuple[int, ...]
    demand_gpu_hours: tuple[float, ...]
    owned_gpu_hours: tuple[float, ...]
    total_usd: float
    rent_all_usd: float
    held_back_by_budget: int  # machines bought later than best, or not at all, for want of money


def plan_growth(growth: Growth, machine: NextMachine) -> GrowthPlan:
    """Each machine at its cheapest month, one after the other; exact without a budget.

    The n-th machine serves the demand beyond the first n − 1, so each is decided for itself: rent its
    part until month t, then pay its price of that month and its running cost, less the resale at the end.
    Of months that cost the same the last is taken, or the last in the first year with such a month where a
    later year's budget is needed for later machines.
    """
    latest = _one_after_the_other(growth, machine, spend_early=False)
    if not latest.held_back_by_budget:
        return latest
    early = _one_after_the_other(growth, machine, spend_early=True)
    return early if early.total_usd < latest.total_usd * (1 - _TIE) else latest


def _one_after_the_other(growth: Growth, machine: NextMachine, *, spend_early: bool) -> GrowthPlan:
    demand, capacity = growth.gpu_hours_by_month(), machine.gpu_hours_per_month
    if demand.max() > capacity * _MOST_MACHINES:
        raise UserMistake(
            f"the demand needs more than {_MOST_MACHINES:,} machines; choose a bigger one"
        )
    months = np.arange(growth.months)
    prices = machine.price_usd * (1 + machine.price_change_per_year) ** (months / 12)
    money = _Budget(machine.budget_usd_per_year, growth.months)
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
        allowed = money.affords(prices) & (months >= earliest)
        choice = _cheapest(np.where(allowed, costs, np.inf), spend_early=spend_early)
        wanted = costs[best] < rented
        if not (allowed[choice] and costs[choice] < rented):
            late += wanted
            total += rented
            continue
        late += wanted and costs[choice] > costs[best] + _TIE * rented
        money.spend(choice, float(prices[choice]))
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
    """What this machine's part of the demand costs over the horizon if it is bought in month t."""
    end = part.size
    # today's worth of a dollar at the start of each month; the last is the end of the horizon
    worth = (1 + machine.discount_per_year) ** (-np.arange(end + 1) / 12)
    rented = np.concatenate([[0.0], np.cumsum(part * worth[1:])])
    months_held = np.concatenate([[0.0], np.cumsum(worth[1:])])
    rent = rented[:-1] * machine.rent_usd_per_gpu_hour
    running = (months_held[-1] - months_held[:-1]) * machine.running_usd_per_month
    resale = prices * machine.value_kept_per_year ** ((end - np.arange(end)) / 12) * worth[-1]
    return np.asarray(rent + prices * worth[:-1] + running - resale)


class _Budget:
    """What may be spent on machines in each year."""

    def __init__(self, usd_per_year: float | None, months: int) -> None:
        years = -(-months // 12)
        self._left = np.full(years, np.inf if usd_per_year is None else usd_per_year)
        self._year = np.arange(months) // 12

    def affords(self, prices: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(self._left[self._year] >= prices - 1e-9)

    def spend(self, month: int, usd: float) -> None:
        self._left[month // 12] -= usd
