"""Calculate what a cloud bills for hours of use, and find the increment behind a bill."""

import datetime
from collections.abc import Sequence

from gpuyard import units
from gpuyard.api.cost import choose_price_date
from gpuyard.api.inputs import read_quantity
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import UnknownName, UserMistake, quote
from gpuyard.report.answer import Answer, Part, Sentence, Table

_MAX_VALUE = 1e9  # hours or dollars per line; a larger number is a typo
_MAX_LINES = 5000
_MAX_DIGITS = 40


def invoice(
    hours: str | Sequence[float],
    *,
    rent: str,
    increment: str = "second",
    minimum: str | float = 0.0,
    discount: str | float = 0.0,
    billed: str | Sequence[float] | None = None,
    price_date: datetime.date | None = None,
) -> Result[Row]:
    """Calculate the bill of each use to the cent, rounded up to the increment; `billed` finds the increment of a bill."""
    import numpy as np

    from gpuyard.economics.billing import (
        INCREMENTS,
        billed_hours,
        fitting_increments,
        on_demand_usd,
        parse_hourly_rent,
        to_cents,
    )

    if increment not in INCREMENTS:
        raise UnknownName("billing increment", increment, INCREMENTS)
    price = parse_hourly_rent(rent, "--rent must be a price by the hour")
    printed = _split_list(hours)
    used = np.array([_parse_number(part) for part in printed])
    minimum_hours = read_quantity(minimum, units.parse_seconds) / 3600
    terms = {"increment_hours": INCREMENTS[increment], "minimum_hours": minimum_hours}
    share = read_quantity(discount, units.parse_share)
    usd = on_demand_usd(used, price.usd_per_hour, discount=share, **terms)
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
    if billed is not None:
        amounts = [_parse_number(part) for part in _split_list(billed)]
        fitting = fitting_increments(printed, amounts, price.usd_per_hour)
        matches = (
            f"billing by the {' or the '.join(fitting)}" if fitting else "no billing increment"
        )
        parts.append(Sentence(f"The billed amounts match {matches}."))
    document = {"lines": lines, "total_usd": total, "price_date": day.isoformat()}
    return Result(
        Answer(parts, document | {"fitting_increments": fitting}, rows="lines"), wrap(lines)
    )


def _split_list(numbers: str | Sequence[float]) -> list[str]:
    texts = numbers.split(",") if isinstance(numbers, str) else map(str, numbers)
    parts = [part.strip() for part in texts]
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
