"""A site: where a cluster would stand, and what that room has to offer."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuyard.specs.base import Spec
from gpuyard.specs.quantities import Share, Usd
from gpuyard.specs.site_quantities import (
    Amps,
    Country,
    FloorLoad,
    Kilograms,
    Metres,
    PduName,
    ReceptacleName,
    TemperatureRise,
    UsdPerKw,
    UsdPerKwh,
    UsdPerKwMonth,
    Volts,
    Watts,
)

SiteKind = Literal["office", "room", "colocation"]
Cooling = Literal["air", "rear-door", "liquid"]


class Circuit(Spec):
    """Circuits of one kind: each ends in one receptacle behind a breaker of its own."""

    voltage: Annotated[Volts, Field(description="between lines where there are three phases")]
    amps: Annotated[Amps, Field(description="of the breaker")]
    phases: Literal[1, 3] = 1
    receptacle: ReceptacleName
    count: Annotated[
        int | None, Field(gt=0, description="how many there are; as many as needed if left out")
    ] = None
    feed: Annotated[Literal["A", "B"] | None, Field(description="both if left out")] = None


class RackLimits(Spec):
    """What one rack holds."""

    units: Annotated[int, Field(gt=0, le=60)] = 42
    depth: Annotated[Metres, Field(description="of the largest device")] = 1.0
    weight: Kilograms = 1000.0
    power: Watts | None = None
    count: Annotated[int | None, Field(gt=0, description="racks that there is room for")] = None
    per_row: Annotated[int, Field(gt=0, le=100)] = 12


class Site(Spec):
    """A place with power, cooling and floor."""

    name: Annotated[str, Field(min_length=1)]
    kind: SiteKind
    country: Country = "US"
    continuous_load: Annotated[
        Share | None, Field(gt=0, description="of a breaker, for hours on end")
    ] = None
    feeds: Annotated[Literal[1, 2], Field(description="2: A and B, each carries everything")] = 1
    circuits: Annotated[tuple[Circuit, ...], Field(min_length=1)]
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
    def _both_feeds_have_circuits(self) -> "Site":
        feeds = {circuit.feed for circuit in self.circuits}
        if self.feeds == 2 and None not in feeds and feeds != {"A", "B"}:
            raise ValueError("with two feeds, there are circuits of feed A and of feed B")
        if self.feeds == 1 and "B" in feeds:
            raise ValueError("a circuit is on feed B, but 'feeds' is 1")
        return self
