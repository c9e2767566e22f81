"""What a room is built of and costs to run: servers as a rack and an electrician see them, rack PDUs, plugs."""

import functools
from typing import Literal

from pydantic import Field, field_validator

from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml

SupplyGrade = Literal["gold", "platinum", "titanium"]


class ServerModel(Fact):
    """One box, named like its row in the machines table where it has one.

    `supplies_needed` run it at full speed, and with fewer than `supplies_minimum` it is off.
    """

    name: str
    rack_units: int = Field(gt=0)
    depth_mm: float = Field(gt=0)
    weight_kg: float = Field(gt=0)
    max_watts: float | None = Field(default=None, gt=0)
    """Maximum input as its maker gives it; else the draw is added up from its parts."""
    supplies: int = Field(gt=0)
    supplies_needed: int = Field(gt=0)
    supplies_minimum: int = Field(gt=0)
    supply_watts: float = Field(gt=0)
    supply_grade: SupplyGrade = "platinum"
    inlet: Literal["c14", "c16", "c20"]
    volts_minimum: float = Field(default=100, gt=0)
    tower: bool = False
    noise_dba: float | None = None
    basis: Literal["listed", "estimate"]
    """What weight, depth and supplies rest on."""
    note: str = ""


@functools.cache
def servers() -> FactTable[ServerModel]:
    return read_toml("server", ServerModel, "servers.toml")


class Pdu(Fact):
    """One power distribution unit. Its amps are those of its inlet, a row of the plugs table; an
    inlet that the source does not rate is left out, and such a unit is never chosen by itself.

    Units with two inlets that switch between them (`ats`) and those with a battery (`ups`) are in
    the same source; they are told apart by `kind`.
    """

    name: str
    kind: Literal["pdu", "ats", "ups"]
    rack_units: int = Field(ge=0)
    """0: it hangs in the back of the rack and takes no unit."""
    inlet: str | None = None
    inlets: int = Field(gt=0)
    max_watts: float | None = Field(default=None, gt=0)
    c13: int = Field(default=0, ge=0)
    c15: int = Field(default=0, ge=0)
    c19: int = Field(default=0, ge=0)
    c39: int = Field(default=0, ge=0)
    """Outlets that take a C14 or a C20."""
    other_outlets: str = ""
    outlets_basis: Literal["listed", "estimate"]
    note: str = ""


@functools.cache
def pdus() -> FactTable[Pdu]:
    return read_csv("PDU", Pdu, "pdus.csv")


Region = Literal["iec", "north-america"]


class Plug(Fact):
    """One face. A plug or inlet has pins, a socket, outlet or connector has holes.

    The same C13 is rated 10 A by IEC and 15 A in North America; a face that one side of the world
    does not rate has no amps there.
    """

    name: str
    standard: Literal["IEC 60320", "IEC 60309", "NEMA", "California", "CEE 7", "BS 1363"]
    gender: Literal["plug", "socket"]
    poles: Literal["2P+E", "2P+N+E", "3P+E", "3P+N+E"]
    volts: float = Field(gt=0)
    phases: Literal[1, 3]
    neutral: bool
    amps_iec: float | None = Field(default=None, gt=0)
    amps_north_america: float | None = Field(default=None, gt=0)
    mates: tuple[str, ...]
    colour: str = ""
    use: str
    note: str = ""

    @field_validator("phases", mode="before")
    @classmethod
    def _whole(cls, cell: object) -> object:
        return int(cell) if isinstance(cell, str) else cell

    @field_validator("mates", mode="before")
    @classmethod
    def _split(cls, cell: object) -> object:
        return cell.split(";") if isinstance(cell, str) else cell

    def amps(self, region: Region) -> float | None:
        """The rating in this part of the world, or the other one's where it has none."""
        first, second = self.amps_iec, self.amps_north_america
        if region == "north-america":
            first, second = second, first
        return first if first is not None else second


@functools.cache
def plugs() -> FactTable[Plug]:
    return read_csv("plug", Plug, "plugs.csv")


def fits(one: str, other: str) -> bool:
    """Whether the two faces go together."""
    return other in plugs().get(one).mates


class FacilityCost(Fact):
    """One published average."""

    name: str
    value: float
    unit: str = ""
    note: str = ""


@functools.cache
def facility_costs() -> FactTable[FacilityCost]:
    return read_csv("facility cost", FacilityCost, "facility_costs.csv")
