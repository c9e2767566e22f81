"""Catalog tables for rooms: physical and electrical data of servers, rack PDUs, plugs, and facility costs."""

import functools
from typing import Literal

from pydantic import Field, field_validator

from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml

SupplyGrade = Literal["gold", "platinum", "titanium"]
Region = Literal["iec", "north-america"]


class ServerModel(Fact):
    """A server, with the same id as its row in the machines table if it has one.

    It runs at full speed with `supplies_needed` power supplies, and turns off with fewer than `supplies_minimum`.
    """

    name: str
    rack_units: int = Field(gt=0)
    depth_mm: float = Field(gt=0)
    weight_kg: float = Field(gt=0)
    max_watts: float | None = Field(default=None, gt=0)
    """Maximum input power from the vendor; by default, the sum of the parts."""
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
    """The basis of weight, depth, and supplies."""
    note: str = ""


@functools.cache
def servers() -> FactTable[ServerModel]:
    return read_toml("server", ServerModel, "servers.toml")


class Pdu(Fact):
    """A power distribution unit, rated by its inlet, which is a row of the plugs table.

    If the source does not rate the inlet, `inlet` is None, and gpuyard never chooses the unit by itself. The source also
    has automatic transfer switches (`ats`) and units with a battery (`ups`).
    """

    name: str
    kind: Literal["pdu", "ats", "ups"]
    rack_units: int = Field(ge=0)
    """0: it is mounted at the back of the rack and needs no rack unit."""
    inlet: str | None = None
    inlets: int = Field(gt=0)
    region: Region | None = None
    """The only region in which it is sold; None: all, as far as its source says."""
    continuous_amps: float | None = Field(default=None, gt=0)
    """The current per line that the maker allows continuously, if it is below the inlet's rating."""
    max_watts: float | None = Field(default=None, gt=0)
    c13: int = Field(default=0, ge=0)
    c15: int = Field(default=0, ge=0)
    c19: int = Field(default=0, ge=0)
    c39: int = Field(default=0, ge=0)
    """Combination outlets, which accept a C14 or a C20."""
    other_outlets: str = ""
    outlets_basis: Literal["listed", "estimate"]
    note: str = ""


@functools.cache
def pdus() -> FactTable[Pdu]:
    return read_csv("PDU", Pdu, "pdus.csv")


class Plug(Fact):
    """A plug (or inlet) with pins, or a socket (or outlet, connector) with holes.

    Ratings differ by region: a C13 has 10 A in IEC countries and 15 A in North America. A plug without a rating in a
    region has no amps there.
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
    color: str = ""
    use: str
    note: str = ""

    @field_validator("phases", mode="before")
    @classmethod
    def _parse_phases(cls, cell: object) -> object:
        return int(cell) if isinstance(cell, str) else cell

    @field_validator("mates", mode="before")
    @classmethod
    def _split_mates(cls, cell: object) -> object:
        return cell.split(";") if isinstance(cell, str) else cell

    def amps(self, region: Region) -> float | None:
        """Return the rating in this region, or the other region's if there is none."""
        first, second = self.amps_iec, self.amps_north_america
        if region == "north-america":
            first, second = second, first
        return first if first is not None else second


@functools.cache
def plugs() -> FactTable[Plug]:
    return read_csv("plug", Plug, "plugs.csv")


def plugs_mate(plug: str, socket: str) -> bool:
    """Return whether the plug fits the socket."""
    return socket in plugs().get(plug).mates


class FacilityCost(Fact):
    """A published average of a facility cost."""

    name: str
    value: float
    unit: str = ""
    note: str = ""


@functools.cache
def facility_costs() -> FactTable[FacilityCost]:
    return read_csv("facility cost", FacilityCost, "facility_costs.csv")
