"""`gpuyard cost growth`: find when a growing team should buy its next machine."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import (
    DiscountRateOption,
    GpusPerNodeOption,
    HorizonOption,
    PriceDateOption,
    quantity_option,
    share_option,
    usd_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show


def growth(
    *,
    researchers: Annotated[float, typer.Option(metavar="N", help="People who train models today.")],
    hires_per_year: Annotated[
        float, typer.Option(show_default=False, help="People who join per year.")
    ] = 0.0,
    gpu_hours: Annotated[float, typer.Option(help="GPU-hours per researcher and month.")],
    demand_growth: Annotated[
        float, share_option("Growth of each person's demand per year, e.g. '30%'.")
    ] = 0.0,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Rent of one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd_option("Price of one machine, e.g. '$28389'.")],
    gpus_per_node: GpusPerNodeOption = 1,
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

    Example: gpuyard cost growth --researchers 12 --hires-per-year 4 --gpu-hours 120 --rent '$1.50/h' --buy '$28389' --gpus-per-node 8
    """
    from gpuyard.api.growth import growth as plan_growth

    result = plan_growth(
        researchers=researchers,
        hires_per_year=hires_per_year,
        gpu_hours=gpu_hours,
        demand_growth=demand_growth,
        rent=rent,
        buy=buy,
        gpus_per_node=gpus_per_node,
        running=running,
        usable=usable,
        price_falls=price_falls,
        value_kept=value_kept,
        budget=budget,
        discount_rate=discount_rate,
        horizon=horizon,
        price_date=price_date,
        chart=html is not None,
    )
    show(result.answer, json_output=json_output, html=html)
