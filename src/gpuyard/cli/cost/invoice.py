"""`gpuyard cost invoice`: what a cloud bills for hours of use."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import PriceDateOption, given_on, quantity, share
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UnknownName, UserMistake, quoted

_MOST = 1e9  # hours or dollars of one line; beyond this a number is a slip
_MOST_LINES = 5000
_LONGEST = 40  # characters of a number


def invoice(
    hours: Annotated[str, typer.Argument(help="Hours of each use, e.g. 0.67,1.28.")],
    *,
    rent: Annotated[
        str, typer.Option(metavar="PRICE", help="E.g. '$1.50/h', or aws/p4d.24xlarge.")
    ],
    increment: Annotated[
        str, typer.Option(help="Each use is rounded up to: hour, minute, second, 1/100 h.")
    ] = "second",
    minimum: Annotated[
        float, quantity(units.parse_seconds, "TIME", "Least that is billed for each use.")
    ] = 0.0,
    discount: Annotated[float, share("Off the price, e.g. '10 %'.")] = 0.0,
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

    from gpuyard.economics.billing import (
        INCREMENTS,
        billed_hours,
        fitting_increments,
        hourly_rent,
        on_demand_usd,
        to_cents,
    )
    from gpuyard.report.answer import Answer, Part, Sentence, Table

    if increment not in INCREMENTS:
        raise UnknownName("billing increment", increment, INCREMENTS)
    price = hourly_rent(rent, "an invoice of uses needs a price by the hour")
    printed = _listed(hours)
    used = np.array([_number(part) for part in printed])
    terms = {"increment_hours": INCREMENTS[increment], "minimum_hours": minimum / 3600}
    usd = on_demand_usd(used, price.usd_per_hour, discount=discount, **terms)
    lines = [
        {"hours": float(h), "billed_hours": float(b), "usd": to_cents(float(u))}
        for h, b, u in zip(used, billed_hours(used, *terms.values()), usd, strict=True)
    ]
    total, day = to_cents(sum(line["usd"] for line in lines)), price.date or given_on(price_date)
    parts: list[Part] = [
        Table(
            f"At {units.format_usd(price.usd_per_hour)}/h, by the {increment}",
            ["hours", "hours billed", "cost"],
            [
                [f"{line['hours']:g}", f"{line['billed_hours']:.4g}", f"${line['usd']:,.2f}"]
                for line in lines
            ],
        ),
        Sentence(f"Total ${total:,.2f}, at the price of {day}."),
    ]
    fitting = None
    if billed_amounts is not None:
        amounts = [_number(part) for part in _listed(billed_amounts)]
        fitting = fitting_increments(printed, amounts, price.usd_per_hour)
        words = f"billing by the {', or the '.join(fitting)}" if fitting else "no billing increment"
        parts.append(Sentence(f"What was billed fits {words}."))
    document = {"lines": lines, "total_usd": total, "price_date": day.isoformat()}
    show(Answer(parts, document | {"fitting_increments": fitting}), json_output=json_output)


def _listed(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_LINES:
        raise UserMistake(f"an invoice has at most {_MOST_LINES:,} lines, got {len(parts):,}")
    return parts


def _number(text: str) -> float:
    """As invoices print it: 1.28."""
    try:
        number = float(text) if len(text) <= _LONGEST and "e" not in text.lower() else float("nan")
    except ValueError:
        number = float("nan")
    if not number < _MOST:
        raise UserMistake(f"expected numbers like 0.67,1.28, got {quoted(text)}")
    return number
