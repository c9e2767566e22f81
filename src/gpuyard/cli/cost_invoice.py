"""`gpuyard cost invoice`: what a cloud bills for hours of use."""

from typing import Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table
from gpuyard.cli.owning import PriceDateOption


def invoice(
    hours: Annotated[str, typer.Argument(help="Hours of each use, e.g. 0.67,1.28.")],
    *,
    rent: Annotated[str, typer.Option(help="Price, e.g. '$1.50/h', or aws/p3.16xlarge.")],
    increment: Annotated[
        str, typer.Option(help="What each use is rounded up to: hour, minute, second, 1/100 h.")
    ] = "second",
    minimum: Annotated[str, typer.Option(help="Billed for each use at least.")] = "0 s",
    discount: Annotated[str, typer.Option(help="Off the price, e.g. '10 %'.")] = "0 %",
    price_date: PriceDateOption = None,
    json_output: JsonOption = False,
) -> None:
    """Bill each use: rounded up to the increment, at least the minimum, to the cent.

    Example: gpuyard cost invoice 0.67,1.28,0.75 --rent '$1.50/h'
    """
    import numpy as np

    from gpuyard import units
    from gpuyard.cli.owning import given_on, read_rent
    from gpuyard.economics import INCREMENTS, billed_hours, on_demand_usd, to_cents
    from gpuyard.errors import UnknownName, UserMistake

    if increment not in INCREMENTS:
        raise UnknownName("billing increment", increment, INCREMENTS)
    price = read_rent(rent)
    if price.usd_per_year:
        raise UserMistake("an invoice of uses needs a price by the hour")
    used = np.array([_hours(part) for part in hours.split(",")])
    terms = INCREMENTS[increment], units.parse_seconds(minimum) / 3600
    billed = billed_hours(used, *terms)
    usd = on_demand_usd(
        used,
        price.usd_per_hour,
        increment_hours=terms[0],
        minimum_hours=terms[1],
        discount=units.parse_share(discount),
    )
    cents = [to_cents(float(line)) for line in usd]
    day = (price.date or given_on(price_date)).isoformat()
    if json_output:
        lines = [
            {"hours": float(h), "billed_hours": float(b), "usd": c}
            for h, b, c in zip(used, billed, cents, strict=True)
        ]
        print_json({"lines": lines, "total_usd": to_cents(sum(cents)), "price_date": day})
        return
    print_table(
        f"At {units.format_usd(price.usd_per_hour)}/h, by the {increment}",
        ["hours", "billed", "to pay"],
        [[f"{h:g}", f"{b:.4g}", f"${c:,.2f}"] for h, b, c in zip(used, billed, cents, strict=True)],
    )
    console().print(f"All: ${to_cents(sum(cents)):,.2f}, at the price of {day}.", highlight=False)


def _hours(text: str) -> float:
    from gpuyard.errors import UserMistake

    try:
        return float(text)
    except ValueError:
        raise UserMistake(f"{text.strip()!r} is not a number of hours; write 0.67,1.28") from None
