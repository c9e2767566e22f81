"""Reserved capacity: a price for a term of years, used or not, with some share of it paid up front."""

from typing import Literal

import numpy as np

from gpuyard.economics.amounts import Amounts, Array, array_of, check_not_negative, check_share
from gpuyard.errors import UserMistake
from gpuyard.units import format_years

Rest = Literal["pay", "resell"]
"""What happens to the part of a term that runs past the horizon: it is paid for nothing, or sold on."""
_ABOUT_A_MONTH = 0.1  # how far a number of months may be from a whole one


def reserved_usd(
    horizon_years: Amounts,
    usd_per_year: Amounts,
    *,
    term_years: Amounts = 1.0,
    rest: Rest | None = None,
    resale_share: Amounts = 0.0,
) -> Array:
    """Dollars to cover the horizon with as many terms as it takes.

    `usd_per_year` is the whole price of a year: what is paid up front counts in it. A term that runs
    past the horizon needs `rest`: "pay" counts the whole term, "resell" gets back `resale_share` of
    the unused part.
    """
    check_not_negative("the price", usd_per_year)
    unused = unused_years(horizon_years, term_years, rest)
    given_back = _given_back(rest, resale_share)
    return array_of(usd_per_year) * (array_of(horizon_years) + unused * (1 - given_back))


def reserved_cash_by_month(
    months: int,
    usd_per_year: Amounts,
    *,
    term_years: float = 1.0,
    upfront_share: Amounts = 0.0,
    rest: Rest | None = None,
    resale_share: Amounts = 0.0,
) -> Array:
    """What is paid when: shape `(…, months + 1)`. Month 0 is the day of signing.

    At the start of each term its upfront share, the rest in equal payments at the end of each month.
    What is still owed past the horizon, less what it sells for, falls due in the last month.
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
    sold = yearly * unused * _given_back(rest, resale_share)
    cash[..., -1] += owed - sold
    return cash


def _whole_months(term_years: float) -> int:
    months = 12 * term_years
    # 90 days are three months to those who sell them
    if months < 0.5 or abs(months - round(months)) > _ABOUT_A_MONTH:
        raise UserMistake(
            f"expected a reserved term of whole months, got {months:.2g}; write it like '1 year' or '6 months'"
        )
    return round(months)


def unused_years(horizon_years: Amounts, term_years: Amounts, rest: Rest | None) -> Array:
    """The part of the last term after the horizon; a sentence where nobody said what becomes of it."""
    horizon, term = array_of(horizon_years), array_of(term_years)
    if np.any(~(horizon > 0)) or np.any(~(term > 0)):
        raise UserMistake("a horizon and a reserved term must be above zero")
    unused = np.maximum(np.ceil(horizon / term - 1e-9) * term - horizon, 0.0)
    if rest is None and np.any(unused > 1e-9):
        at = np.unravel_index(int(np.argmax(unused)), unused.shape)
        wide = np.broadcast_to(horizon, unused.shape)[at], np.broadcast_to(term, unused.shape)[at]
        raise UserMistake(
            f"reserved terms of {format_years(wide[1])} run {format_years(unused[at])} past a horizon of "
            f"{format_years(wide[0])}: say what becomes of the rest, 'pay' (you pay for it unused) or 'resell'"
        )
    return unused


def _given_back(rest: Rest | None, resale_share: Amounts) -> Array:
    check_share("the resale share", resale_share)
    return array_of(resale_share) if rest == "resell" else array_of(0.0)
