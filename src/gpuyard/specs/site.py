"""A site: where a cluster would stand, and what that room has to offer."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from gpuyard.specs.base import (
    MOST_LISTED,
    Country,
    Name,
    Region,
    Share,
    Spec,
    Unit,
    Usd,
    known_name,
    quantity,
)
from gpuyard.units import Dimension, parse_positive


def _positive(
    name: str, example: str, factors: Mapping[str, float]
) -> tuple[BeforeValidator, WithJsonSchema, Unit]:
    """A quantity that can't be zero and never goes without its unit."""
    dimension = Dimension(name, example, dict(factors))

    def parse(value: str | float) -> float:
        money = isinstance(value, str) and example.startswith("$")
        return parse_positive(str(value).strip().removeprefix("$") if money else value, dimension)

    base = next(unit for unit, factor in factors.items() if factor == 1)

    def show(value: float) -> str:
        return f"${value:g}{base}" if base.startswith("/") else f"{value:g} {base}"

    return quantity(parse, name, example, show, types="string")


Volts = Annotated[float, *_positive("a voltage", "208 V", {"V": 1.0, "kV": 1e3})]
Amps = Annotated[float, *_positive("a current", "60 A", {"A": 1.0})]
Watts = Annotated[float, *_positive("a power", "17 kW", {"W": 1.0, "kW": 1e3, "MW": 1e6})]
Kilograms = Annotated[
    float, *_positive("a weight", "1000 kg", {"kg": 1.0, "t": 1e3, "lb": 0.45359237})
]
Metres = Annotated[
    float, *_positive("a length", "1200 mm", {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "ft": 0.3048})
]
FloorLoad = Annotated[
    float,
    *_positive("a floor load", "1200 kg/m2", {"kg/m2": 1.0, "kg/m²": 1.0, "kN/m2": 1000 / 9.81}),
]
TemperatureRise = Annotated[
    float,
    *_positive("a temperature difference", "12 K", {"K": 1.0, "C": 1.0, "°C": 1.0, "F": 5 / 9}),
]
UsdPerKwh = Annotated[float, *_positive("a price of energy", "$0.12/kWh", {"/kWh": 1.0})]
UsdPerKwMonth = Annotated[
    float, *_positive("a price of power", "$184/kW/month", {"/kW/month": 1.0})
]
UsdPerKw = Annotated[float, *_positive("a price of capacity", "$11000/kW", {"/kW": 1.0})]
PduName = Annotated[Name, AfterValidator(known_name("PDU"))]
ReceptacleName = Annotated[Name, AfterValidator(known_name("plug"))]
SiteKind = Literal["office", "room", "colocation"]
Cooling = Literal["air", "rear-door", "liquid"]


class Circuit(Spec):
    """Circuits of one kind: each ends in one receptacle behind a breaker of its own."""

    voltage: Annotated[Volts, Field(description="between lines where there are three phases")]
    amps: Annotated[Amps, Field(description="of the breaker")]
    phases: Literal[1, 3] = 1
    receptacle: ReceptacleName
    count: Annotated[
        int | None,
        Field(gt=0, le=1_000_000, description="how many there are; as many as needed if left out"),
    ] = None
    feed: Annotated[Literal["A", "B"] | None, Field(description="both if left out")] = None


class RackLimits(Spec):
    """What one rack holds."""

    units: Annotated[int, Field(gt=0, le=60)] = 42
    depth: Annotated[Metres, Field(description="of the largest device")] = 1.0
    weight: Kilograms = 1000.0
    power: Watts | None = None
    count: Annotated[
        int | None, Field(gt=0, le=1_000_000, description="racks that there is room for")
    ] = None
    per_row: Annotated[int, Field(gt=0, le=100)] = 12


class Site(Spec):
    """A place with power, cooling and floor."""

    name: Name
    kind: SiteKind
    country: Country = "US"
    region: Region | None = None
    continuous_load: Annotated[
        Share | None, Field(gt=0, description="of a breaker, for hours on end")
    ] = None
    feeds: Annotated[Literal[1, 2], Field(description="2: A and B, each carries everything")] = 1
    circuits: Annotated[tuple[Circuit, ...], Field(min_length=1, max_length=MOST_LISTED)]
    pdu: PduName | None = None
    rack: RackLimits = RackLimits()
    cooling: Cooling = "air"
    cooling_power: Watts | None = None
    temperature_rise: TemperatureRise = 12.0
    floor_load: FloorLoad | None = None
    cable_limit: Annotated[Metres | None, Field(description="the longest network cable")] = None
    pue: Annotated[float | None, Field(ge=1, le=5)] = None
    tariff: UsdPerKwh | None = None
    colocation_rate: UsdPerKwMonth | None = None
    build: UsdPerKw | None = None
    rack_price: Usd | None = None

    @model_validator(mode="after")
    def _region_in_country(self) -> "Site":
        if self.region is not None and not self.region.startswith(f"{self.country}-"):
            raise ValueError(f"region {self.region} is not in country {self.country}")
        return self

    @property
    def place(self) -> str | None:
        """Whose electricity price holds; None where the file does not say where the site is."""
        return self.region or (self.country if "country" in self.model_fields_set else None)

    @model_validator(mode="after")
    def _both_feeds_have_circuits(self) -> "Site":
        feeds = {circuit.feed for circuit in self.circuits}
        if self.feeds == 2 and None not in feeds and feeds != {"A", "B"}:
            raise ValueError("with two feeds, circuits are needed on feed A and on feed B")
        if self.feeds == 1 and "B" in feeds:
            raise ValueError("a circuit is on feed B, but 'feeds' is 1")
        return self
