"""Renting against owning: the purchase alone against hours of rent, and everything over a horizon (totals,
today's worth, cash by month, and when both are even)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from gpuyard.economics.billing import (
    HOURS_PER_YEAR,
    Amounts,
    Array,
    array_of,
    check_not_negative,
    check_share,
)
from gpuyard.economics.ownership import (
    Owned,
    loan_payment_usd,
    monthly_usd,
    owned_cash_by_month,
    present_value_usd,
    upfront_usd,
)
from gpuyard.errors import UnknownName, UserMistake


@dataclass(frozen=True)
class BreakEven:
    """Renting by the hour against paying once."""

    rent_usd_per_hour: float
    buy_usd: float
    speed_lead: float
    hours_per_year: float

    @property
    def comparable_buy_usd(self) -> float:
        """The founding rule of thumb: $8,000 less 30 % for a machine that is 30 % faster is $5,600.

        It says after how many rented hours buying is even, in one number. Nobody pays it.
        """
        return self.buy_usd * (1 - self.speed_lead)

    @property
    def break_even_hours(self) -> float:
        """Rented hours that cost as much as buying, by that rule."""
        return self.comparable_buy_usd / self.rent_usd_per_hour

    @property
    def break_even_years(self) -> float:
        """The same at the stated use."""
        return self.break_even_hours / self.hours_per_year

    def rented_usd(self, years: float) -> float:
        """What renting has cost after so many years of the stated use."""
        return self.rent_usd_per_hour * self.hours_per_year * years


def break_even(
    rent_usd_per_hour: float, buy_usd: float, hours_per_year: float, speed_lead: float = 0.0
) -> BreakEven:
    """Renting against buying, with the inputs checked."""
    if not 0 < hours_per_year <= 8784:
        raise UserMistake(f"expected above 0 and up to 8,784 hours a year, got {hours_per_year:g}")
    if rent_usd_per_hour <= 0:
        raise UserMistake(
            "the rent must be above $0 an hour: what is free to rent is never worth buying"
        )
    if not 0 <= speed_lead < 1:
        raise UserMistake("the speed lead must be at least 0 % and below 100 %")
    return BreakEven(rent_usd_per_hour, buy_usd, speed_lead, hours_per_year)


MOST_YEARS = 50
_NO_INPUTS = {"owned", "months", "rest_years"}


@dataclass(frozen=True)
class RentOrOwn:
    """The same work on rented and on owned hardware. All but the horizon may be arrays.

    The work is `hours_per_year` on the rented machine. With a speed lead of 30 % the owned one does 1.3
    times as much in an hour, as an offer of that `speed` does: it is under load for fewer hours, and paid whole.
    """

    owned: Owned
    rent_usd_per_hour: Amounts = 0.0
    hours_per_year: Amounts = 2000.0
    reserved_usd_per_year: Amounts = 0.0  # paid used or not, by the month
    rent_extras_usd_per_month: Amounts = 0.0  # storage, egress, support of the cloud
    speed_lead: Amounts = 0.0
    discount_per_year: Amounts = 0.0
    rest_resold: Amounts = 0.0  # share of the rest's price that comes back
    rest_years: float = field(default=0.0, kw_only=True)  # of a reserved term, after the horizon
    months: int = field(default=36, kw_only=True)

    def __post_init__(self) -> None:
        hours = array_of(self.hours_per_year)
        if np.any(~((hours >= 0) & (hours <= 8784))):
            wrong = hours[~((hours >= 0) & (hours <= 8784))].flat[0]
            raise UserMistake(f"expected 0 to 8,784 hours a year, got {wrong:g}")
        if not 1 <= self.months <= 12 * MOST_YEARS:
            raise UserMistake(
                f"expected a horizon of 1 month to {MOST_YEARS} years, got {self.months} months"
            )
        for name in ("rent_usd_per_hour", "reserved_usd_per_year", "rent_extras_usd_per_month"):
            check_not_negative(name.replace("_usd", "").replace("_", " "), getattr(self, name))
        check_share("the speed lead", self.speed_lead)
        check_share("the resale share", self.rest_resold)
        check_not_negative("the rest of a term", self.rest_years)
        check_not_negative("the discount rate", self.discount_per_year)

    @property
    def running(self) -> Owned:
        """The owned machine under load for as long as the work takes it."""
        hours = array_of(self.hours_per_year) / (1 + array_of(self.speed_lead))
        return replace(self.owned, utilisation=np.minimum(hours / HOURS_PER_YEAR, 1.0))

    def with_inputs(self, inputs: Mapping[str, Amounts]) -> "RentOrOwn":
        """The same with other figures; names are the fields of this and of `Owned`."""
        own_names = {f.name for f in fields(Owned)} - {"utilisation"}
        names = {f.name for f in fields(self)} - _NO_INPUTS
        for name in inputs:
            if name not in own_names | names:
                raise UnknownName("input", name, own_names | names)
        owned = replace(self.owned, **{n: v for n, v in inputs.items() if n in own_names})
        mine: dict[str, Any] = {n: v for n, v in inputs.items() if n in names}
        return replace(self, owned=owned, **mine)

    def inputs(self) -> dict[str, Amounts]:
        """Every figure by name, as `with_inputs` takes them."""
        own = {
            f.name: getattr(self.owned, f.name) for f in fields(Owned) if f.name != "utilisation"
        }
        mine = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NO_INPUTS}
        return own | mine


def rent_monthly_usd(case: RentOrOwn) -> Array:
    """What a month of renting costs."""
    yearly = array_of(case.rent_usd_per_hour) * case.hours_per_year + case.reserved_usd_per_year
    return yearly / 12 + case.rent_extras_usd_per_month


def rest_of_term_usd(case: RentOrOwn) -> Array:
    """What is still owed after the horizon for a term that runs past it, less what it is sold on for."""
    owed = array_of(case.reserved_usd_per_year) * case.rest_years
    return owed * (1 - array_of(case.rest_resold))


def rented_cash_by_month(case: RentOrOwn) -> Array:
    """Nothing on the first day, then the same at the end of each month: shape `S + (months + 1,)`.

    The rest of a term counts in the last month.
    """
    monthly, rest = rent_monthly_usd(case), rest_of_term_usd(case)
    shape = np.broadcast_shapes(monthly.shape, rest.shape)
    cash = np.zeros((*shape, case.months + 1))
    cash[..., 1:] = monthly[..., None]
    cash[..., -1] += rest
    return cash


def paid_by_month(case: RentOrOwn) -> Array:
    """The payments of owning, for as much work as is rented."""
    return owned_cash_by_month(case.running, case.months)


def saving_usd(case: RentOrOwn) -> Array:
    """What owning saves over the horizon in today's money; below zero it costs more than renting."""
    rented = present_value_usd(rented_cash_by_month(case), case.discount_per_year)
    return rented - present_value_usd(paid_by_month(case), case.discount_per_year)


def break_even_months(case: RentOrOwn) -> Array:
    """After how many months as much has been paid for renting as for owning; infinite where it never is.

    `paid once / (rent − running cost)`, both a month; payments of a loan count while it runs. What the
    hardware would sell for is not counted: nobody who breaks even sells.
    """
    machine = case.running
    behind = upfront_usd(machine) * (1 - array_of(machine.financed_share))
    later = rent_monthly_usd(case) - monthly_usd(machine)
    payment = loan_payment_usd(machine)
    term = np.where(payment > 0, array_of(machine.loan_years) * 12, 0.0)
    early = later - payment
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        during = np.where(
            early > 0, behind / early, np.where(behind + (early < 0) > 0, np.inf, 0.0)
        )
        still_behind = behind - early * term
        after = np.where(
            still_behind <= 0, term, np.where(later > 0, term + still_behind / later, np.inf)
        )
    return np.where(during <= term, during, after)
