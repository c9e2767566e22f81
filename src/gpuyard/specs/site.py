"""The spec of a site: the room for a cluster, with its power, cooling, racks, and prices."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from gpuyard.specs.base import (
    MAX_LISTED,
    Country,
    Name,
    Region,
    Share,
    Spec,
    Unit,
    Usd,
    check_known_name,
    quantity,
)
from gpuyard.units import Dimension, parse_positive


def _positive(
    name: str, example: str, factors: Mapping[str, float]
) -> tuple[BeforeValidator, WithJsonSchema, Unit]:
    """Return the annotations of a quantity that must be above zero and have a unit."""
    dimension = Dimension(name, example, dict(factors))

    def parse(value: str | float) -> float:
        money = isinstance(value, str) and example.startswith("$")
        return parse_positive(str(value).strip().removeprefix("$") if money else value, dimension)

    base = next(unit for unit, factor in factors.items() if factor == 1)

    def format(value: float) -> str:
        return f"${value:g}{base}" if base.startswith("/") else f"{value:g} {base}"

    return quantity(parse, name, example, format, types="string")


Volts = Annotated[float, *_positive("a voltage", "208 V", {"V": 1.0, "kV": 1e3})]
Amps = Annotated[float, *_positive("a current", "60 A", {"A": 1.0})]
Watts = Annotated[float, *_positive("a power", "17 kW", {"W": 1.0, "kW": 1e3, "MW": 1e6})]
Kilograms = Annotated[
    float, *_positive("a weight", "1000 kg", {"kg": 1.0, "t": 1e3, "lb": 0.45359237})
]
Meters = Annotated[
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
UsdPerKwh = Annotated[float, *_positive("an energy price", "$0.12/kWh", {"/kWh": 1.0})]
UsdPerKwMonth = Annotated[float, *_positive("a power price", "$184/kW/month", {"/kW/month": 1.0})]
UsdPerKw = Annotated[float, *_positive("a capacity price", "$11000/kW", {"/kW": 1.0})]
PduName = Annotated[Name, AfterValidator(check_known_name("PDU"))]
ReceptacleName = Annotated[Name, AfterValidator(check_known_name("plug"))]
SiteKind = Literal["office", "room", "colocation"]
Cooling = Literal["air", "rear-door", "liquid"]


class Circuit(Spec):
    """Circuits of one kind, each with its own breaker and one receptacle."""

    voltage: Annotated[Volts, Field(description="voltage; with three phases, between lines")]
    amps: Annotated[Amps, Field(description="rating of the breaker")]
    phases: Annotated[Literal[1, 3], Field(description="number of phases")] = 1
    receptacle: Annotated[
        ReceptacleName, Field(description="socket, as named by `gpuyard facility plugs`")
    ]
    count: Annotated[
        int | None,
        Field(gt=0, le=1_000_000, description="number of circuits; default: as many as needed"),
    ] = None
    feed: Annotated[
        Literal["A", "B"] | None, Field(description="feed of the circuits; default: both")
    ] = None


class RackLimits(Spec):
    """The limits of one rack."""

    units: Annotated[int, Field(gt=0, le=60, description="rack units")] = 42
    depth: Annotated[Meters, Field(description="depth of the largest device")] = 1.0
    weight: Annotated[Kilograms, Field(description="weight of all devices")] = 1000.0
    power: Annotated[
        Watts | None, Field(description="largest heat load; default: by kind and cooling")
    ] = None
    count: Annotated[
        int | None,
        Field(
            gt=0,
            le=1_000_000,
            description="largest number of racks in the room; default: as many as needed",
        ),
    ] = None
    per_row: Annotated[int, Field(gt=0, le=100, description="number of racks in one row")] = 12


class Site(Spec):
    """A room with its power, cooling, and floor."""

    name: Annotated[Name, Field(description="name in the output")]
    kind: Annotated[SiteKind, Field(description="kind of site")]
    country: Annotated[
        Country,
        Field(
            description="two-letter country code, for the usable share of a breaker and the electricity price; "
            "default: `US`, and the answer states it"
        ),
    ] = "US"
    region: Annotated[
        Region | None,
        Field(
            description="region with its own electricity price, like `US-IL`, as named by `gpuyard catalog "
            "electricity`"
        ),
    ] = None
    continuous_load: Annotated[
        Share | None,
        Field(
            gt=0,
            description="share of a breaker's rating that may be used continuously; default: by country",
        ),
    ] = None
    feeds: Annotated[
        Literal[1, 2],
        Field(description="number of power feeds; with two, A and B each carry the whole load"),
    ] = 1
    circuits: Annotated[
        tuple[Circuit, ...],
        Field(min_length=1, max_length=MAX_LISTED, description="list of circuits, by kind"),
    ]
    pdu: Annotated[
        PduName | None,
        Field(
            description="PDU, as named by `gpuyard catalog pdus`; default: the one that needs the fewest racks"
        ),
    ] = None
    rack: Annotated[RackLimits, Field(description="limits of one rack")] = RackLimits()
    cooling: Annotated[Cooling, Field(description="kind of cooling")] = "air"
    cooling_power: Annotated[
        Watts | None, Field(description="cooling capacity of the site; default: enough")
    ] = None
    temperature_rise: Annotated[
        TemperatureRise,
        Field(description="temperature rise of the air from front to rear"),
    ] = 12.0
    floor_load: Annotated[
        FloorLoad | None,
        Field(description="load that the floor can carry, like `1200 kg/m2`; default: enough"),
    ] = None
    cable_limit: Annotated[
        Meters | None, Field(description="length of the longest network cable")
    ] = None
    pue: Annotated[
        float | None,
        Field(
            ge=1,
            le=5,
            description="power of the building divided by that of the devices; default: a published average",
        ),
    ] = None
    tariff: Annotated[
        UsdPerKwh | None,
        Field(
            description="electricity price, like `$0.12/kWh`; default: the region's or country's"
        ),
    ] = None
    colocation_rate: Annotated[
        UsdPerKwMonth | None,
        Field(description="colocation rent, like `$184/kW/month`; default: a published average"),
    ] = None
    build: Annotated[
        UsdPerKw | None,
        Field(description="price of building a room, like `$11000/kW`; default: left open"),
    ] = None
    rack_price: Annotated[
        Usd | None, Field(description="price of one empty rack; default: left open")
    ] = None

    @model_validator(mode="after")
    def _check_region(self) -> "Site":
        if self.region is not None and not self.region.startswith(f"{self.country}-"):
            raise ValueError(f"region {self.region} is not in country {self.country}")
        return self

    @property
    def place(self) -> str | None:
        """The region or country for the electricity price, or None if the file does not name one."""
        return self.region or (self.country if "country" in self.model_fields_set else None)

    @model_validator(mode="after")
    def _check_feeds(self) -> "Site":
        feeds = {circuit.feed for circuit in self.circuits}
        if self.feeds == 2 and None not in feeds and feeds != {"A", "B"}:
            raise ValueError("with two feeds, circuits are needed on feed A and on feed B")
        if self.feeds == 1 and "B" in feeds:
            raise ValueError("a circuit is on feed B, but 'feeds' is 1")
        return self
