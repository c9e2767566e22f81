"""`gpuyard cost invoice`: what a cloud bills for hours of use."""

from typing import Annotated

import typer

from gpuyard.cli.cost.owning import PriceDateOption
from gpuyard.cli.options import JsonOption, console, print_json, print_table

_MOST = 1e9  # hours or dollars of one line; beyond this a number is a slip


def invoice(
    hours: Annotated[str, typer.Argument(help="Hours of each use, e.g. 0.67,1.28.")],
    *,
    rent: Annotated[str, typer.Option(help="Price, e.g. '$1.50/h', or aws/p4d.24xlarge.")],
    increment: Annotated[
        str, typer.Option(help="What each use is rounded up to: hour, minute, second, 1/100 h.")
    ] = "second",
    minimum: Annotated[str, typer.Option(help="Billed for each use at least.")] = "0 s",
    discount: Annotated[str, typer.Option(help="Off the price, e.g. '10 %'.")] = "0 %",
    billed_amounts: Annotated[
        str | None,
        typer.Option("--billed", help="What was billed, e.g. 1.01,1.92: say which increment fits."),
    ] = None,
    price_date: PriceDateOption = None,
    json_output: JsonOption = False,
) -> None:
    """Bill each use: rounded up to the increment, at least the minimum, to the cent.

    Example: gpuyard cost invoice 0.67,1.28,0.75 --rent '$1.50/h'
    """
    import numpy as np

    from gpuyard import units
    from gpuyard.cli.cost.owning import given_on, read_rent
    from gpuyard.economics.billing import (
        INCREMENTS,
        billed_hours,
        fitting_increments,
        on_demand_usd,
        to_cents,
    )
    from gpuyard.errors import UnknownName, UserMistake

    if increment not in INCREMENTS:
        raise UnknownName("billing increment", increment, INCREMENTS)
    price = read_rent(rent)
    if price.usd_per_year:
        raise UserMistake("an invoice of uses needs a price by the hour")
    parts = [part.strip() for part in hours.split(",")]
    used = np.array([_number(part) for part in parts])
    fitting = None
    if billed_amounts is not None:
        amounts = [_number(part) for part in billed_amounts.split(",")]
        fitting = fitting_increments(parts, amounts, price.usd_per_hour)
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
        total = {"total_usd": to_cents(sum(cents)), "price_date": day}
        print_json({"lines": lines, **total, "fitting_increments": fitting})
        return
    print_table(
        f"At {units.format_usd(price.usd_per_hour)}/h, by the {increment}",
        ["hours", "billed", "to pay"],
        [[f"{h:g}", f"{b:.4g}", f"${c:,.2f}"] for h, b, c in zip(used, billed, cents, strict=True)],
    )
    console().print(f"All: ${to_cents(sum(cents)):,.2f}, at the price of {day}.", highlight=False)
    if fitting is not None:
        words = f"billing by the {', or the '.join(fitting)}" if fitting else "no billing increment"
        console().print(f"What was billed fits {words}.", highlight=False)


def _number(text: str) -> float:
    from gpuyard.errors import UserMistake

    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not number < _MOST:
        raise UserMistake(f"{text.strip()!r} is not a number; write a list like 0.67,1.28")
    return number
