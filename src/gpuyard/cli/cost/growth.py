"""`gpuyard cost growth`: find when a growing team should buy its next machine."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.api.cost import choose_price_date
from gpuyard.cli.cost.options import (
    DiscountRateOption,
    GpusPerMachineOption,
    HorizonOption,
    PriceDateOption,
    quantity_option,
    share_option,
    usd_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show


def growth(
    *,
    researchers: Annotated[float, typer.Option(help="People who train models today.")],
    hires_per_year: Annotated[
        float, typer.Option(show_default=False, help="People who join per year.")
    ] = 0.0,
    gpu_hours: Annotated[float, typer.Option(help="GPU-hours per researcher and month.")],
    demand_growth: Annotated[
        float, share_option("Growth of each person's demand per year, e.g. '30%'.")
    ] = 0.0,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Rent of one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd_option("Price of one machine, e.g. '$28389'.")],
    gpus_per_machine: GpusPerMachineOption = 1,
    running: Annotated[
        float,
        quantity_option(
            units.parse_usd_per_year,
            "PRICE",
            "Power, space, and staff for one machine, e.g. '$6000/year'.",
        ),
    ] = 0.0,
    usable: Annotated[
        float, share_option("Share of a machine's hours that people can use (default: 70%).")
    ] = 0.7,
    price_falls: Annotated[
        float, share_option("Price decrease of machines per year, e.g. '10%'.")
    ] = 0.0,
    value_kept: Annotated[float, share_option("Resale value kept per year, e.g. '70%'.")] = 0.0,
    budget: Annotated[
        float | None,
        quantity_option(
            units.parse_usd_per_year, "PRICE", "Budget for machines, e.g. '$60000/year'."
        ),
    ] = None,
    discount_rate: DiscountRateOption = 0.0,
    horizon: HorizonOption = 36,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find when to buy each next machine; the remaining demand is rented.

    Example: gpuyard cost growth --researchers 12 --hires-per-year 4 --gpu-hours 120 --rent '$1.50/h' --buy '$28389' --gpus-per-machine 8
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
            demand_growth_per_year=demand_growth,
            months=horizon,
        ),
        NextMachine(
            gpus=gpus_per_machine,
            price_usd=buy,
            running_usd_per_month=running / 12,
            rent_usd_per_gpu_hour=rented.usd_per_hour,
            usable_share=usable,
            price_change_per_year=-price_falls,
            value_kept_per_year=value_kept,
            budget_usd_per_year=budget,
            discount_per_year=discount_rate,
        ),
    )
    day = (rented.date or choose_price_date(price_date)).isoformat()
    answer = growth_answer(plan, day, with_chart=html is not None)
    show(answer, json_output=json_output, html=html)
