"""A price of renting as people state it: by the hour, by the year, or an instance of the catalog."""

import datetime
from dataclasses import dataclass

from gpuyard import units
from gpuyard.errors import BadQuantity, UserMistake


@dataclass(frozen=True)
class RentPrice:
    """By the hour of use or by the year; the other one is zero."""

    usd_per_hour: float
    usd_per_year: float
    words: str
    date: datetime.date | None  # None: as the user gives it


def rent_price(text: str) -> RentPrice:
    """ "$1.50/h", "$160308/year", or an instance of the catalog with its price and date."""
    if "/" in text and "$" not in text and not text[:1].isdigit():
        from gpuyard.catalog import price_named

        price = price_named(text)
        return RentPrice(price.usd_per_hour, 0.0, price.id, price.date)
    try:
        hourly = units.parse_usd_per_hour(text)
        return RentPrice(hourly, 0.0, f"{units.format_usd(hourly)}/h", None)
    except BadQuantity:
        pass
    try:
        yearly = units.parse_usd_per_year(text)
        return RentPrice(0.0, yearly, f"{units.format_usd(yearly)} a year", None)
    except BadQuantity:
        raise UserMistake(
            f"{text!r} is not a price of renting; write it like '$1.50/h', '$160308/year' or "
            "'aws/p4d.24xlarge'"
        ) from None


def hourly_rent(text: str, otherwise: str) -> RentPrice:
    """The same where only a price by the hour makes sense."""
    price = rent_price(text)
    if price.usd_per_year:
        raise UserMistake(otherwise)
    return price
