"""Field types for what a room is measured in: volts, amps, watts, kilograms, metres and money."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from gpuyard import units
from gpuyard.errors import BadQuantity
from gpuyard.specs.quantities import known_name
from gpuyard.units import Dimension

_VOLTS = Dimension("a voltage", "208 V", {"V": 1.0, "kV": 1e3})
_AMPS = Dimension("a current", "60 A", {"A": 1.0})
_WATTS = Dimension("a power", "17 kW", {"W": 1.0, "kW": 1e3, "MW": 1e6})
_KILOGRAMS = Dimension("a weight", "1000 kg", {"kg": 1.0, "t": 1e3, "lb": 0.45359237})
_METRES = Dimension("a length", "1200 mm", {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "ft": 0.3048})
_FLOOR = Dimension("a floor load", "1200 kg/m2", {"kg/m2": 1.0, "kg/m²": 1.0, "kN/m2": 1000 / 9.81})
_KELVIN = Dimension("a temperature difference", "12 K", {"K": 1.0, "C": 1.0, "°C": 1.0, "F": 5 / 9})
_TARIFF = Dimension("a price of energy", "$0.12/kWh", {"/kWh": 1.0})
_RENT = Dimension("a price of power", "$184/kW/month", {"/kW/month": 1.0})
_BUILD = Dimension("a price of capacity", "$11000/kW", {"/kW": 1.0})


def _quantity(dimension: Dimension) -> Callable[[Any], float]:
    money = dimension.example.startswith("$")

    def validate(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise PydanticCustomError("bad_quantity", "expected a quantity with its unit")
        bare = value.strip().removeprefix("$") if money and isinstance(value, str) else value
        try:
            return units.parse_positive(bare, dimension)
        except BadQuantity as mistake:
            raise PydanticCustomError("bad_quantity", "{why}", {"why": str(mistake)}) from None

    return validate


def _field(dimension: Dimension) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"type": "string", "description": dimension.name, "examples": [dimension.example]}
    return BeforeValidator(_quantity(dimension)), WithJsonSchema(schema)


Volts = Annotated[float, *_field(_VOLTS)]
Amps = Annotated[float, *_field(_AMPS)]
Watts = Annotated[float, *_field(_WATTS)]
Kilograms = Annotated[float, *_field(_KILOGRAMS)]
Metres = Annotated[float, *_field(_METRES)]
FloorLoad = Annotated[float, *_field(_FLOOR)]
TemperatureRise = Annotated[float, *_field(_KELVIN)]
UsdPerKwh = Annotated[float, *_field(_TARIFF)]
UsdPerKwMonth = Annotated[float, *_field(_RENT)]
UsdPerKw = Annotated[float, *_field(_BUILD)]
PduName = Annotated[str, AfterValidator(known_name("PDU"))]
ReceptacleName = Annotated[str, AfterValidator(known_name("plug"))]
Country = Annotated[str, Field(pattern=r"^[A-Z]{2}$", description="two letters, as in ISO 3166")]
