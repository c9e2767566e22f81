"""Which billing increment explains the lines of an invoice.

An invoice prints hours with two decimals but bills what lies behind them, so a line leaves some room:
0.86 h at $1.50 may be $1.28 to $1.30. An increment fits where every line can come from whole increments.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from gpuyard.economics.billing import INCREMENTS, to_cents
from gpuyard.errors import UserMistake


def fitting_increments(
    hours: Sequence[str], billed_usd: Sequence[float], usd_per_hour: float
) -> list[str]:
    """The increments that every line can come from, the coarsest first. Hours are as printed."""
    if len(hours) != len(billed_usd):
        raise UserMistake(
            f"{len(hours)} line(s) of hours, but {len(billed_usd)} amount(s): each line needs both"
        )
    lines = list(zip(hours, billed_usd, strict=True))
    return [
        name
        for name, increment in sorted(INCREMENTS.items(), key=lambda item: -item[1])
        if all(_fits(printed, usd, usd_per_hour, increment) for printed, usd in lines)
    ]


def _fits(printed: str, usd: float, usd_per_hour: float, increment_hours: float) -> bool:
    shown = Decimal(printed)
    half = float(Decimal(1).scaleb(min(int(shown.as_tuple().exponent), 0))) / 2
    low, high = float(shown) - half, float(shown) + half
    first = int(np.ceil(low / increment_hours - 1e-9))
    last = int(np.floor(high / increment_hours + 1e-9))
    return any(
        to_cents(count * increment_hours * usd_per_hour) == to_cents(usd)
        for count in range(max(first, 0), last + 1)
    )
