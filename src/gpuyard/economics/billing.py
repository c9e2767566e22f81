"""Rental prices and cloud bills: on demand, committed, reserved, and spot capacity, storage, and egress.

All billing functions accept floats or NumPy arrays that broadcast against each other and return dollars in
their common shape. Prices are for the whole rented unit (an instance or a cluster).
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuyard import units
from gpuyard.errors import BadQuantity, UserMistake, quote
from gpuyard.units import format_years

Array: TypeAlias = NDArray[np.float64]
Amounts: TypeAlias = float | Array
"""One figure, or an array with one per candidate, draw, or month."""

HOURS_PER_YEAR = 365.25 * 24
HOURS_PER_MONTH = HOURS_PER_YEAR / 12


def array_of(amounts: Amounts) -> Array:
    return np.asarray(amounts, dtype=np.float64)


def check_not_negative(what: str, amounts: Amounts) -> None:
    """Raise UserMistake if a figure is negative, infinite, or missing."""
    values = array_of(amounts)
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        raise UserMistake(f"{what} must be zero or more, and finite, got {wrong.flat[0]:g}")


def check_share(what: str, amounts: Amounts) -> None:
    """Raise UserMistake if a share is not between 0 and 1."""
    values = array_of(amounts)
    wrong = values[~((values >= 0) & (values <= 1))]
    if wrong.size:
        raise UserMistake(
            f"{what} must be between 0% and 100%, got {100 * float(wrong.flat[0]):g}%"
        )


INCREMENTS: Mapping[str, float] = {
    "hour": 1.0,
    "minute": 1 / 60,
    "second": 1 / 3600,
    "1/100 h": 0.01,
}
"""Billing increments in hours; clouds round each use up to a multiple."""

_SLACK = 1e-9  # 0.67 / 0.01 is 67.00000000000001, which is not a 68th increment


@dataclass(frozen=True)
class RentPrice:
    """A rental price per hour of use or per year; the other field is zero."""

    usd_per_hour: float
    usd_per_year: float
    text: str
    date: datetime.date | None  # None: given by the user


def parse_rent_price(text: str) -> RentPrice:
    """Parse "$1.50/h", "$160308/year", or a catalog instance with its price and date."""
    if text[:1].isalpha():
        from gpuyard.catalog import find_price
        from gpuyard.catalog.short_names import find_instance

        instance = find_instance(text)
        price = find_price(text if instance is None else instance.id)
        return RentPrice(price.usd_per_hour, 0.0, price.id, price.date)
    try:
        hourly = units.parse_usd_per_hour(text)
        return RentPrice(hourly, 0.0, f"{units.format_usd(hourly)}/h", None)
    except BadQuantity:
        pass
    try:
        yearly = units.parse_usd_per_year(text)
        return RentPrice(0.0, yearly, f"{units.format_usd(yearly)} per year", None)
    except BadQuantity:
        raise UserMistake(
            f"{quote(text)} is not a rental price in dollars; write it like '$1.50/h', '$160308/year', or "
            "'aws/p4d.24xlarge'"
        ) from None


def parse_hourly_rent(text: str, error_message: str) -> RentPrice:
    """Parse a rental price; raise UserMistake with this message if it is a yearly price."""
    price = parse_rent_price(text)
    if price.usd_per_year:
        raise UserMistake(error_message)
    return price


def billed_hours(
    hours: Amounts, increment_hours: Amounts = INCREMENTS["second"], minimum_hours: Amounts = 0.0
) -> Array:
    """Round each use up to whole increments, and to the minimum if anything is used."""
    check_not_negative("hours", hours)
    check_not_negative("the minimum", minimum_hours)
    used, increment = array_of(hours), array_of(increment_hours)
    if np.any(increment <= 0):
        raise UserMistake("the billing increment must be above zero")
    rounded = np.ceil(used / increment * (1 - _SLACK) - _SLACK) * increment
    # rounding up must never bill less than was used
    return np.where(used > 0, np.maximum(np.maximum(rounded, used), minimum_hours), 0.0)


def on_demand_usd(
    hours: Amounts,
    usd_per_hour: Amounts,
    *,
    increment_hours: Amounts = INCREMENTS["second"],
    minimum_hours: Amounts = 0.0,
    discount: Amounts = 0.0,
) -> Array:
    """Return the price of use: `billed hours × price × (1 − discount)`.

    `hours` is one use; for many uses, pass an array and sum the result. The discount applies to all use; for
    discounts against a commitment, see `committed_usd`.
    """
    check_not_negative("the price", usd_per_hour)
    check_share("the discount", discount)
    billed = billed_hours(hours, increment_hours, minimum_hours)
    return billed * array_of(usd_per_hour) * (1 - array_of(discount))


def committed_usd(
    hours: Amounts, usd_per_hour: Amounts, *, committed_hours: Amounts, discount: Amounts
) -> Array:
    """Return the price with a committed-use discount over the same period as `hours`.

    The commitment is paid at the discounted price even when idle; hours beyond it cost the full price.
    """
    check_not_negative("hours", hours)
    check_not_negative("the commitment", committed_hours)
    check_not_negative("the price", usd_per_hour)
    check_share("the discount", discount)
    beyond = np.maximum(array_of(hours) - committed_hours, 0.0)
    return array_of(usd_per_hour) * (array_of(committed_hours) * (1 - array_of(discount)) + beyond)


def storage_usd(gigabytes: Amounts, months: Amounts, usd_per_gb_month: Amounts) -> Array:
    """Return the price of stored data, per gigabyte and month."""
    for what, amounts in (
        ("storage", gigabytes), ("months", months), ("the price of storage", usd_per_gb_month)
    ):  # fmt: skip
        check_not_negative(what, amounts)
    return array_of(gigabytes) * array_of(months) * usd_per_gb_month


def egress_usd(gigabytes: Amounts, usd_per_gb: Amounts, free_gigabytes: Amounts = 0.0) -> Array:
    """Return the price of outgoing data, per gigabyte beyond the free amount."""
    for what, amounts in (
        ("egress", gigabytes), ("the price of egress", usd_per_gb), ("free egress", free_gigabytes)
    ):  # fmt: skip
        check_not_negative(what, amounts)
    return np.maximum(array_of(gigabytes) - free_gigabytes, 0.0) * usd_per_gb


def to_cents(usd: float) -> float:
    """Round to cents as invoices do: half a cent rounds up, in decimal arithmetic."""
    return float(Decimal(f"{usd:.9f}").quantize(Decimal("0.01"), ROUND_HALF_UP))


def fitting_increments(
    hours: Sequence[str], billed_usd: Sequence[float], usd_per_hour: float
) -> list[str]:
    """Return the increments that explain every line of an invoice, the coarsest first.

    An invoice prints hours with two decimals but bills the exact hours, so 0.86 h at $1.50 may be $1.28 to $1.30.
    """
    if len(hours) != len(billed_usd):
        raise UserMistake(
            f"{units.format_count(len(hours), 'line')} of hours, but {units.format_count(len(billed_usd), 'amount')}: "
            "each line needs both"
        )
    lines = list(zip(hours, billed_usd, strict=True))
    return [
        name
        for name, increment in sorted(INCREMENTS.items(), key=lambda item: -item[1])
        if all(_fits(printed, usd, usd_per_hour, increment) for printed, usd in lines)
    ]


def _fits(printed: str, usd: float, usd_per_hour: float, increment_hours: float) -> bool:
    shown = Decimal(printed)
    half = float(Decimal(1).scaleb(min(int(shown.as_tuple().exponent), 0))) / 2
    low, high = float(shown) - half, float(shown) + half
    first = int(np.ceil(low / increment_hours - 1e-9))
    last = int(np.floor(high / increment_hours + 1e-9))
    return any(
        to_cents(count * increment_hours * usd_per_hour) == to_cents(usd)
        for count in range(max(first, 0), last + 1)
    )


Rest = Literal["pay", "resell"]
"""The two uses of a term's part after the horizon: pay for it unused, or resell it."""
_MONTH_TOLERANCE = 0.1  # how far a number of months may be from a whole number


def reserved_usd(
    horizon_years: Amounts,
    usd_per_year: Amounts,
    *,
    term_years: Amounts = 1.0,
    rest: Rest | None = None,
    resale_share: Amounts = 0.0,
) -> Array:
    """Return the price of as many terms as the horizon needs.

    `usd_per_year` is the whole price of a year, including upfront payments. A term that extends past the
    horizon needs `rest`: "pay" counts the whole term, and "resell" refunds `resale_share` of the unused part.
    """
    check_not_negative("the price", usd_per_year)
    unused = unused_years(horizon_years, term_years, rest)
    refunded = _refunded_share(rest, resale_share)
    return array_of(usd_per_year) * (array_of(horizon_years) + unused * (1 - refunded))


def reserved_cash_by_month(
    months: int,
    usd_per_year: Amounts,
    *,
    term_years: float = 1.0,
    upfront_share: Amounts = 0.0,
    rest: Rest | None = None,
    resale_share: Amounts = 0.0,
) -> Array:
    """Return the payments by month, with shape `(…, months + 1)`; month 0 is the day of signing.

    Each term starts with its upfront share; the rest is paid in equal parts at the end of each month. The debt
    after the horizon, minus its resale, is due in the last month.
    """
    check_share("the upfront share", upfront_share)
    check_not_negative("the price", usd_per_year)
    term_months = _whole_months(term_years)
    term_years = term_months / 12
    unused = unused_years(months / 12, term_years, rest)
    yearly, upfront = array_of(usd_per_year), array_of(upfront_share)
    shape = np.broadcast_shapes(yearly.shape, upfront.shape, array_of(resale_share).shape)
    cash = np.zeros((*shape, months + 1))
    cash[..., 1:] = (yearly * (1 - upfront) / 12)[..., None]
    cash[..., range(0, months, term_months)] += (yearly * term_years * upfront)[..., None]
    owed = yearly * (1 - upfront) * unused
    resold = yearly * unused * _refunded_share(rest, resale_share)
    cash[..., -1] += owed - resold
    return cash


def _whole_months(term_years: float) -> int:
    months = 12 * term_years
    # vendors sell 90 days as three months
    if months < 0.5 or abs(months - round(months)) > _MONTH_TOLERANCE:
        raise UserMistake(
            f"a reserved term must be whole months, got {months:.2g}; write it like '1 year' or '6 months'"
        )
    return round(months)


def unused_years(horizon_years: Amounts, term_years: Amounts, rest: Rest | None) -> Array:
    """Return the part of the last term after the horizon; raise UserMistake if `rest` is missing."""
    horizon, term = array_of(horizon_years), array_of(term_years)
    if np.any(~(horizon > 0)) or np.any(~(term > 0)):
        raise UserMistake("a horizon and a reserved term must be above zero")
    unused = np.maximum(np.ceil(horizon / term - 1e-9) * term - horizon, 0.0)
    if rest is None and np.any(unused > 1e-9):
        index = np.unravel_index(int(np.argmax(unused)), unused.shape)
        longest_term = np.broadcast_to(term, unused.shape)[index]
        its_horizon = np.broadcast_to(horizon, unused.shape)[index]
        raise UserMistake(
            f"reserved terms of {format_years(longest_term)} extend {format_years(unused[index])} past a horizon "
            f"of {format_years(its_horizon)}; choose what happens to the rest: 'pay' (paid unused) or 'resell'"
        )
    return unused


def _refunded_share(rest: Rest | None, resale_share: Amounts) -> Array:
    check_share("the resale share", resale_share)
    return array_of(resale_share) if rest == "resell" else array_of(0.0)
