"""`gpuyard cost invoice`: calculate what a cloud bills for hours of use."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.api.cost import choose_price_date
from gpuyard.cli.cost.options import PriceDateOption, quantity_option, share_option
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UnknownName, UserMistake, quote

_MAX_VALUE = 1e9  # hours or dollars per line; a larger number is a typo
_MAX_LINES = 5000
_MAX_DIGITS = 40


def invoice(
    hours: Annotated[str, typer.Argument(help="Hours of each use, e.g. 0.67,1.28.")],
    *,
    rent: Annotated[
        str, typer.Option(metavar="PRICE", help="Rent: '$1.50/h', or aws/p4d.24xlarge.")
    ],
    increment: Annotated[
        str, typer.Option(help="Unit to round each use up to: hour, minute, second, 1/100 h.")
    ] = "second",
    minimum: Annotated[
        float, quantity_option(units.parse_seconds, "TIME", "Minimum billed time of each use.")
    ] = 0.0,
    discount: Annotated[float, share_option("Discount on the price, e.g. '10%'.")] = 0.0,
    billed_amounts: Annotated[
        str | None,
        typer.Option("--billed", help="Billed amounts, e.g. 1.01,1.92, to find the increment."),
    ] = None,
    price_date: PriceDateOption = None,
    json_output: JsonOption = False,
) -> None:
    """Calculate the bill of each use to the cent, rounded up to the increment.

    Example: gpuyard cost invoice 0.67,1.28,0.75 --rent '$1.50/h'
    """
    import numpy as np

    from gpuyard.economics.billing import (
        INCREMENTS,
        billed_hours,
        fitting_increments,
        on_demand_usd,
        parse_hourly_rent,
        to_cents,
    )
    from gpuyard.report.answer import Answer, Part, Sentence, Table

    if increment not in INCREMENTS:
        raise UnknownName("billing increment", increment, INCREMENTS)
    price = parse_hourly_rent(rent, "--rent must be a price by the hour")
    printed = _split_list(hours)
    used = np.array([_parse_number(part) for part in printed])
    terms = {"increment_hours": INCREMENTS[increment], "minimum_hours": minimum / 3600}
    usd = on_demand_usd(used, price.usd_per_hour, discount=discount, **terms)
    lines = [
        {"hours": float(h), "billed_hours": float(b), "usd": to_cents(float(u))}
        for h, b, u in zip(used, billed_hours(used, *terms.values()), usd, strict=True)
    ]
    total = to_cents(sum(line["usd"] for line in lines))
    day = price.date or choose_price_date(price_date)
    parts: list[Part] = [
        Table(
            f"At {units.format_usd(price.usd_per_hour)}/h, by the {increment}",
            ["hours", "hours billed", "cost"],
            [
                [f"{line['hours']:g}", f"{line['billed_hours']:.4g}", f"${line['usd']:,.2f}"]
                for line in lines
            ],
        ),
        Sentence(f"Total ${total:,.2f}, at the price from {day}."),
    ]
    fitting = None
    if billed_amounts is not None:
        amounts = [_parse_number(part) for part in _split_list(billed_amounts)]
        fitting = fitting_increments(printed, amounts, price.usd_per_hour)
        matches = (
            f"billing by the {' or the '.join(fitting)}" if fitting else "no billing increment"
        )
        parts.append(Sentence(f"The billed amounts match {matches}."))
    document = {"lines": lines, "total_usd": total, "price_date": day.isoformat()}
    show(Answer(parts, document | {"fitting_increments": fitting}), json_output=json_output)


def _split_list(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MAX_LINES:
        raise UserMistake(f"an invoice has at most {_MAX_LINES:,} lines, got {len(parts):,}")
    return parts


def _parse_number(text: str) -> float:
    """Parse a number in the format of invoices, such as 1.28."""
    try:
        number = (
            float(text) if len(text) <= _MAX_DIGITS and "e" not in text.lower() else float("nan")
        )
    except ValueError:
        number = float("nan")
    if not number < _MAX_VALUE:
        raise UserMistake(f"expected numbers like 0.67,1.28, got {quote(text)}")
    return number
