"""The servers as a rack and an electrician see them: size, weight, supplies, power and noise."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_toml

SupplyGrade = Literal["gold", "platinum", "titanium"]


class Server(Fact):
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
def servers() -> Table[Server]:
    return read_toml("server", Server, "servers.toml")
