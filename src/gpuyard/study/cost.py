"""Compares renting with buying in a study: the break-even, the payments by month, and the decisive inputs."""

import datetime
import math

from gpuyard.catalog.electricity import price_electricity
from gpuyard.economics.billing import HOURS_PER_YEAR
from gpuyard.economics.ownership import OwnedHardware
from gpuyard.economics.rent_or_own import (
    RentOrOwn,
    break_even,
    break_even_months,
    paid_by_month,
    rented_cash_by_month,
    saving_usd,
)
from gpuyard.economics.sensitivity import ranges_around, tornado
from gpuyard.specs.study import RentOrBuy
from gpuyard.study.result import CostResult, HorizonResult

SWING = 0.2


def build_cost_result(cost: RentOrBuy) -> CostResult:
    """Calculate the break-even at the full price, and at the price less the speed lead."""
    full_price = break_even(cost.rent, cost.buy, cost.hours_per_year)
    comparable = break_even(cost.rent, cost.buy, cost.hours_per_year, cost.speed_lead)
    return CostResult(
        rent_usd_per_hour=cost.rent,
        buy_usd=cost.buy,
        speed_lead=cost.speed_lead,
        comparable_buy_usd=comparable.comparable_buy_usd,
        hours_per_year=cost.hours_per_year,
        break_even_hours=comparable.break_even_hours,
        break_even_years=comparable.break_even_years,
        undiscounted_break_even_hours=full_price.break_even_hours,
        undiscounted_break_even_years=full_price.break_even_years,
        horizon=compare_over_horizon(cost),
    )


def compare_over_horizon(cost: RentOrBuy) -> HorizonResult:
    """Calculate all payments of renting and owning, and how much each input changes the result."""
    keys = ("'power'", "'electricity' or 'country'")
    usd_per_kwh, electricity = price_electricity(cost.power, cost.electricity, cost.country, keys)
    case = RentOrOwn(
        OwnedHardware(
            hardware_usd=cost.buy,
            watts=cost.power,
            usd_per_kwh=usd_per_kwh,
            pue=cost.pue,
            colocation_usd_per_year=cost.colocation_per_year,
            value_kept_per_year=cost.value_kept_per_year,
        ),
        rent_usd_per_hour=cost.rent,
        hours_per_year=cost.hours_per_year,
        speed_lead=cost.speed_lead,
        discount_per_year=cost.discount_rate,
        months=round(cost.horizon / 3600 / HOURS_PER_YEAR * 12),
    )
    even = float(break_even_months(case))
    date = cost.date or datetime.datetime.now(datetime.UTC).date()
    return HorizonResult(
        price_date=date.isoformat(),
        saving_usd=float(saving_usd(case)),
        rented_cash_by_month=tuple(rented_cash_by_month(case).tolist()),
        owned_cash_by_month=tuple(paid_by_month(case).tolist()),
        break_even_months=even if math.isfinite(even) else None,
        swing=SWING,
        tornado=tuple(tornado(case, ranges_around(case, SWING))),
        electricity=electricity,
    )
