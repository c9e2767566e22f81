"""Compare renting with owning: a simple break-even, and all costs over a horizon.

The full comparison has totals, present values, cash by month, and the break-even month.
"""

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
    OwnedHardware,
    loan_payment_usd,
    monthly_usd,
    owned_cash_by_month,
    present_value_usd,
    upfront_usd,
)
from gpuyard.errors import UnknownName, UserMistake


@dataclass(frozen=True)
class BreakEven:
    """A comparison of renting by the hour with a one-time purchase."""

    rent_usd_per_hour: float
    buy_usd: float
    speed_lead: float
    hours_per_year: float

    @property
    def comparable_buy_usd(self) -> float:
        """The price by the founding rule of thumb: $8,000 minus 30% for a 30% faster machine is $5,600.

        It serves only to calculate the break-even hours; the actual price stays $8,000.
        """
        return self.buy_usd * (1 - self.speed_lead)

    @property
    def break_even_hours(self) -> float:
        """The rented hours that cost as much as buying, by the rule of thumb."""
        return self.comparable_buy_usd / self.rent_usd_per_hour

    @property
    def break_even_years(self) -> float:
        """The break-even in years at the stated use."""
        return self.break_even_hours / self.hours_per_year

    def rented_usd(self, years: float) -> float:
        """Return the cost of renting after this many years at the stated use."""
        return self.rent_usd_per_hour * self.hours_per_year * years


def break_even(
    rent_usd_per_hour: float, buy_usd: float, hours_per_year: float, speed_lead: float = 0.0
) -> BreakEven:
    """Check the inputs and return the comparison."""
    if not 0 < hours_per_year <= 8784:
        raise UserMistake(
            f"hours per year must be above 0 and at most 8,784, got {hours_per_year:g}"
        )
    if rent_usd_per_hour <= 0:
        raise UserMistake(
            "the rent must be above $0 per hour; buying never pays if renting is free"
        )
    if not 0 <= speed_lead < 1:
        raise UserMistake("the speed lead must be at least 0% and below 100%")
    return BreakEven(rent_usd_per_hour, buy_usd, speed_lead, hours_per_year)


MAX_YEARS = 50
_NO_INPUTS = {"owned", "months", "rest_years"}


@dataclass(frozen=True)
class RentOrOwn:
    """The same work on rented and on owned hardware; all fields except the horizon may be arrays.

    The work is `hours_per_year` on the rented machine. With a speed lead of 30%, the owned machine does 1.3 times
    as much per hour, so it is under load for fewer hours at its full price.
    """

    owned: OwnedHardware
    rent_usd_per_hour: Amounts = 0.0
    hours_per_year: Amounts = 2000.0
    reserved_usd_per_year: Amounts = 0.0  # paid used or not, by the month
    rent_extras_usd_per_month: Amounts = 0.0  # storage, egress, support of the cloud
    speed_lead: Amounts = 0.0
    discount_per_year: Amounts = 0.0
    rest_resold: Amounts = 0.0  # refunded share of the price of the rest
    rest_years: float = field(
        default=0.0, kw_only=True
    )  # part of a reserved term after the horizon
    months: int = field(default=36, kw_only=True)

    def __post_init__(self) -> None:
        hours = array_of(self.hours_per_year)
        if np.any(~((hours >= 0) & (hours <= 8784))):
            wrong = hours[~((hours >= 0) & (hours <= 8784))].flat[0]
            raise UserMistake(f"hours per year must be 0 to 8,784, got {wrong:g}")
        if not 1 <= self.months <= 12 * MAX_YEARS:
            raise UserMistake(
                f"expected a horizon of 1 month to {MAX_YEARS} years, got {self.months} months"
            )
        for name in ("rent_usd_per_hour", "reserved_usd_per_year", "rent_extras_usd_per_month"):
            check_not_negative(name.replace("_usd", "").replace("_", " "), getattr(self, name))
        check_share("the speed lead", self.speed_lead)
        check_share("the resale share", self.rest_resold)
        check_not_negative("the rest of a term", self.rest_years)
        check_not_negative("the discount rate", self.discount_per_year)

    @property
    def running(self) -> OwnedHardware:
        """The owned machine with the utilization that the work needs."""
        hours = array_of(self.hours_per_year) / (1 + array_of(self.speed_lead))
        return replace(self.owned, utilization=np.minimum(hours / HOURS_PER_YEAR, 1.0))

    def with_inputs(self, inputs: Mapping[str, Amounts]) -> "RentOrOwn":
        """Return a copy with other figures, named by the fields of this class and of `OwnedHardware`."""
        owned_names = {f.name for f in fields(OwnedHardware)} - {"utilization"}
        names = {f.name for f in fields(self)} - _NO_INPUTS
        for name in inputs:
            if name not in owned_names | names:
                raise UnknownName("input", name, owned_names | names)
        owned = replace(self.owned, **{n: v for n, v in inputs.items() if n in owned_names})
        own_fields: dict[str, Any] = {n: v for n, v in inputs.items() if n in names}
        return replace(self, owned=owned, **own_fields)

    def inputs(self) -> dict[str, Amounts]:
        """Return every figure by name, for `with_inputs`."""
        owned = {
            f.name: getattr(self.owned, f.name)
            for f in fields(OwnedHardware)
            if f.name != "utilization"
        }
        own_fields = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NO_INPUTS
        }
        return owned | own_fields


def rent_monthly_usd(case: RentOrOwn) -> Array:
    """Return the monthly cost of renting."""
    yearly = array_of(case.rent_usd_per_hour) * case.hours_per_year + case.reserved_usd_per_year
    return yearly / 12 + case.rent_extras_usd_per_month


def rest_of_term_usd(case: RentOrOwn) -> Array:
    """Return the debt after the horizon for a term that extends past it, minus its resale."""
    owed = array_of(case.reserved_usd_per_year) * case.rest_years
    return owed * (1 - array_of(case.rest_resold))


def rented_cash_by_month(case: RentOrOwn) -> Array:
    """Return equal payments at the end of each month, with shape `S + (months + 1,)`.

    The rest of a term counts in the last month.
    """
    monthly, rest = rent_monthly_usd(case), rest_of_term_usd(case)
    shape = np.broadcast_shapes(monthly.shape, rest.shape)
    cash = np.zeros((*shape, case.months + 1))
    cash[..., 1:] = monthly[..., None]
    cash[..., -1] += rest
    return cash


def paid_by_month(case: RentOrOwn) -> Array:
    """Return the payments for owning, for the same work."""
    return owned_cash_by_month(case.running, case.months)


def saving_usd(case: RentOrOwn) -> Array:
    """Return the present value that owning saves over the horizon; negative if renting is cheaper."""
    rented = present_value_usd(rented_cash_by_month(case), case.discount_per_year)
    return rented - present_value_usd(paid_by_month(case), case.discount_per_year)


def break_even_months(case: RentOrOwn) -> Array:
    """Return the months until renting has cost as much as owning; infinite if it never does.

    The formula is `upfront / (rent − operating cost)` per month; loan payments count during the loan. The resale
    does not count, because the hardware is kept at the break-even.
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
