"""The rack PDUs: which plug brings the power in, and which outlets hand it on."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv


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
def pdus() -> Table[Pdu]:
    return read_csv("PDU", Pdu, "pdus.csv")
