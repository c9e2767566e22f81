"""Business electricity prices by country and region, and the choice of the price for an answer."""

import functools
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv

DEFAULT_COUNTRY = "US"
"""The country if none is given; every answer that uses this default says so."""


class ElectricityPrice(Fact):
    """A published price, with the code of its country or region (ISO 3166) as id."""

    name: str
    usd_per_kwh: float = Field(gt=0)
    customers: str
    """The customers who pay this price; large ones pay less."""
    period: str
    note: str = ""


@functools.cache
def electricity_prices() -> FactTable[ElectricityPrice]:
    return read_csv(
        "country or region with an electricity price", ElectricityPrice, "electricity.csv"
    )


def find_place_code(text: str) -> str:
    """Return the code of a country or region with a price, given its code or name."""
    codes = {row.name.lower(): row.id for row in electricity_prices()} | {"uk": "GB", "usa": "US"}
    code = text.upper() if text.upper() in electricity_prices() else text
    return electricity_prices().get(codes.get(text.lower(), code)).id


@dataclass(frozen=True)
class Tariff:
    """The electricity price that an answer uses; `place` is None if the user gave the price."""

    usd_per_kwh: float
    place: str | None = None
    date: str | None = None
    source: str = "as given"
    is_default: bool = False
    words: str = "as given"

    @property
    def sentence(self) -> str:
        return f"Electricity: ${self.usd_per_kwh:g}/kWh, {self.words}."

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def select_tariff(usd_per_kwh: float | None, place: str | None, option: str) -> Tariff:
    """Return the user's own price, otherwise that of the country or region, otherwise the default country's.

    `option` names the option or key that replaces the default.
    """
    if usd_per_kwh is not None:
        return Tariff(usd_per_kwh)
    has_price = place is not None and place in electricity_prices()
    row = electricity_prices().get(place if place is not None and has_price else DEFAULT_COUNTRY)
    words = f"{row.name}, {row.customers}, {row.period} ({row.source})"
    if not has_price:
        why = "no country is given" if place is None else f"no price is known for {place}"
        words = f"the default, as {why} (give {option}): {words}"
    return Tariff(row.usd_per_kwh, row.id, row.date.isoformat(), row.source, not has_price, words)


def price_electricity(
    watts: float, usd_per_kwh: float, place: str | None, options: tuple[str, str]
) -> tuple[float, str]:
    """Return the price per kWh and a sentence about it; electricity counts only if power and price are given.

    `options` names the options for the power and for the price.
    """
    power_option, price_option = options
    if not watts:
        return 0.0, f"Electricity is not counted: give {power_option}."
    if not usd_per_kwh and place is None:
        return 0.0, f"Electricity is not counted: give {price_option}."
    tariff = select_tariff(usd_per_kwh or None, place, price_option)
    return tariff.usd_per_kwh, tariff.sentence
