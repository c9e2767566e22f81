"""Find when a growing team should buy its next machine."""

import datetime

from gpuyard import units
from gpuyard.api.cost import choose_price_date, parse_months
from gpuyard.api.inputs import read_quantity
from gpuyard.api.result import Result, Row

_HORIZON_MONTHS = 36


def growth(
    *,
    researchers: float,
    gpu_hours: float,
    rent: str,
    buy: str | float,
    hires_per_year: float = 0.0,
    demand_growth: str | float = 0.0,
    gpus_per_node: int = 1,
    running: str | float = 0.0,
    usable: str | float = 0.7,
    price_falls: str | float = 0.0,
    value_kept: str | float = 0.0,
    budget: str | float | None = None,
    discount_rate: str | float = 0.0,
    horizon: str | int = _HORIZON_MONTHS,
    price_date: datetime.date | None = None,
    chart: bool = False,
) -> Result[Row]:
    """Find when to buy each next machine for a team whose demand grows; the remaining demand is rented.

    Quantities are text with a unit, like "$6000/year", or numbers: dollars, dollars per year, shares, and months.
    """
    from gpuyard.economics.billing import parse_hourly_rent
    from gpuyard.economics.growth import Growth, NextMachine, plan_growth
    from gpuyard.report.answers.cost.growth import growth_answer

    rented = parse_hourly_rent(rent, "--rent must be the price of one GPU by the hour")
    plan = plan_growth(
        Growth(
            people=researchers,
            hires_per_year=hires_per_year,
            gpu_hours_per_person_month=gpu_hours,
            demand_growth_per_year=read_quantity(demand_growth, units.parse_share),
            months=round(read_quantity(horizon, parse_months)),
        ),
        NextMachine(
            gpus=gpus_per_node,
            price_usd=read_quantity(buy, units.parse_usd),
            running_usd_per_month=read_quantity(running, units.parse_usd_per_year) / 12,
            rent_usd_per_gpu_hour=rented.usd_per_hour,
            usable_share=read_quantity(usable, units.parse_share),
            price_change_per_year=-read_quantity(price_falls, units.parse_share),
            value_kept_per_year=read_quantity(value_kept, units.parse_share),
            budget_usd_per_year=(
                None if budget is None else read_quantity(budget, units.parse_usd_per_year)
            ),
            discount_per_year=read_quantity(discount_rate, units.parse_share),
        ),
    )
    day = (rented.date or choose_price_date(price_date)).isoformat()
    return Result(growth_answer(plan, day, with_chart=chart))
