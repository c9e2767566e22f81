"""What electricity costs businesses, by country and for some regions, and which price an answer uses."""

import functools
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv

DEFAULT_COUNTRY = "US"
"""Where nobody says where machines stand; every answer that uses it says so."""


class ElectricityPrice(Fact):
    """One published price, named by the code of its country or region (ISO 3166)."""

    name: str
    usd_per_kwh: float = Field(gt=0)
    customers: str
    """Whose price it is: large ones pay less."""
    period: str
    note: str = ""


@functools.cache
def electricity_prices() -> FactTable[ElectricityPrice]:
    return read_csv(
        "country or region with an electricity price", ElectricityPrice, "electricity.csv"
    )


def place_code(text: str) -> str:
    """The code of a country or region whose price is known, by that, by its name, or as people call it."""
    named = {row.name.lower(): row.id for row in electricity_prices()} | {"uk": "GB", "usa": "US"}
    code = text.upper() if text.upper() in electricity_prices() else text
    return electricity_prices().get(named.get(text.lower(), code)).id


@dataclass(frozen=True)
class Tariff:
    """The price of electricity that an answer uses; `place` is None where the user gave the price."""

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


def tariff_of(given: float | None, place: str | None, ask_for: str) -> Tariff:
    """The user's own price, else that of a country or region, else the default's; `ask_for` says what would
    replace the default."""
    if given is not None:
        return Tariff(given)
    known = place is not None and place in electricity_prices()
    row = electricity_prices().get(place if place is not None and known else DEFAULT_COUNTRY)
    words = f"{row.name}, {row.customers}, {row.period} ({row.source})"
    if not known:
        why = "no country is given" if place is None else f"no price is known for {place}"
        words = f"the default, as {why} (give {ask_for}): {words}"
    return Tariff(row.usd_per_kwh, row.id, row.date.isoformat(), row.source, not known, words)


def counted_tariff(
    watts: float, given: float, place: str | None, ask_for: tuple[str, str]
) -> tuple[float, str]:
    """What a kWh costs where power is counted only if somebody gives it, and the sentence that says so.
    `ask_for` names what is asked for: the power, and where the price is from."""
    power, price = ask_for
    if not watts:
        return 0.0, f"Electricity is not counted: give {power}."
    if not given and place is None:
        return 0.0, f"Electricity is not counted: give {price}."
    tariff = tariff_of(given or None, place, price)
    return tariff.usd_per_kwh, tariff.sentence
