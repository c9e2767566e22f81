"""`gpuyard cost growth`: when a growing team buys its next machine."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import (
    DiscountRateOption,
    GpusPerMachineOption,
    HorizonOption,
    PriceDateOption,
    given_on,
    quantity,
    share,
    usd,
)
from gpuyard.cli.output import JsonOption, PageOption, show


def growth(
    *,
    researchers: Annotated[float, typer.Option(help="People who train models, today.")],
    hires_per_year: Annotated[
        float, typer.Option(show_default=False, help="How many join each year.")
    ] = 0.0,
    gpu_hours: Annotated[float, typer.Option(help="GPU-hours per researcher and month.")],
    demand_growth: Annotated[
        float, share("How much more each of them needs per year, e.g. '30 %'.")
    ] = 0.0,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Renting one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd("Buying one machine, e.g. '$28389'.")],
    gpus_per_machine: GpusPerMachineOption = 1,
    running: Annotated[
        float,
        quantity(
            units.parse_usd_per_year,
            "PRICE",
            "Power, space and people for one machine, e.g. '$6000/year'.",
        ),
    ] = 0.0,
    usable: Annotated[
        float, share("Share of a machine's hours that people can fill (default: 70 %).")
    ] = 0.7,
    price_falls: Annotated[float, share("How much cheaper machines get each year.")] = 0.0,
    value_kept: Annotated[float, share("Resale value kept each year, e.g. '70 %'.")] = 0.0,
    budget: Annotated[
        float | None,
        quantity(units.parse_usd_per_year, "PRICE", "To spend on machines, e.g. '$60000/year'."),
    ] = None,
    discount_rate: DiscountRateOption = 0.0,
    horizon: HorizonOption = 36,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say when to buy each next machine, and rent what the owned ones can't do.

    Example: gpuyard cost growth --researchers 12 --hires-per-year 4 --gpu-hours 120 --rent '$1.50/h' --buy '$28389' --gpus-per-machine 8
    """
    from gpuyard.economics.billing import hourly_rent
    from gpuyard.economics.growth import Growth, NextMachine, plan_growth
    from gpuyard.report.answers.cost.growth import growth_answer

    rented = hourly_rent(rent, "--rent is the price of one GPU by the hour")
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
    day = (rented.date or given_on(price_date)).isoformat()
    show(growth_answer(plan, day), json_output=json_output, html=html)
