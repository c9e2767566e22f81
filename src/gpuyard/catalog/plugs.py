"""The plugs and sockets: what each face is rated for, and which other faces it mates with."""

import functools
from typing import Literal

from pydantic import Field, field_validator

from gpuyard.catalog.tables import Fact, Table, read_csv

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
def plugs() -> Table[Plug]:
    return read_csv("plug", Plug, "plugs.csv")


def fits(one: str, other: str) -> bool:
    """Whether the two faces go together."""
    return other in plugs().get(one).mates
