"""What a price of network gear rests on, and as of when it holds."""

import datetime
from typing import Literal

PriceBasis = Literal["listed", "estimate"]
PRICES_OF = 2026
"""The year of every estimate in switches.toml and cables.toml; a row's date is that of its other facts."""


def price_as_of(basis: PriceBasis, date: datetime.date) -> str:
    """For people: an estimate is of the year that it was made in, whatever its row's source."""
    return f"{PRICES_OF}, estimate" if basis == "estimate" else f"{date}, {basis}"
