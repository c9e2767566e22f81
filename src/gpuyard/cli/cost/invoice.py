"""`gpuyard cost invoice`: calculate what a cloud bills for hours of use."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.choices import Increment
from gpuyard.cli.cost.options import PriceDateOption, quantity_option, share_option
from gpuyard.cli.output import JsonOption, show


def invoice(
    hours: Annotated[str, typer.Argument(help="Hours of each use, e.g. 0.67,1.28.")],
    *,
    rent: Annotated[
        str, typer.Option(metavar="PRICE", help="Rent: '$1.50/h', or aws/p4d.24xlarge.")
    ],
    increment: Annotated[Increment, typer.Option(help="Unit to round each use up to.")] = "second",
    minimum: Annotated[
        float, quantity_option(units.parse_seconds, "TIME", "Minimum billed time of each use.")
    ] = 0.0,
    discount: Annotated[float, share_option("Discount on the price, e.g. '10%'.")] = 0.0,
    billed: Annotated[
        str | None,
        typer.Option(
            "--billed",
            metavar="USD,…",
            help="Billed amounts, e.g. 1.01,1.92, to find the increment.",
        ),
    ] = None,
    price_date: PriceDateOption = None,
    json_output: JsonOption = False,
) -> None:
    """Calculate the bill of each use to the cent, rounded up to the increment.

    Example: gpuyard cost invoice 0.67,1.28,0.75 --rent '$1.50/h'
    """
    from gpuyard.api.invoice import invoice as calculate_invoice

    result = calculate_invoice(
        hours,
        rent=rent,
        increment=increment,
        minimum=minimum,
        discount=discount,
        billed=billed,
        price_date=price_date,
    )
    show(result.answer, json_output=json_output)
