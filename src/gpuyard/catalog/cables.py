"""The cables between machines and switches, by kind, rate and the lengths that are sold."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.price_basis import PriceBasis, price_as_of
from gpuyard.catalog.tables import Fact, Table, read_toml

CableKind = Literal["twisted-pair", "dac", "acc", "aoc", "optics"]


class Cable(Fact):
    """One sort of cable, with what is at its ends. Prices are of one cable, and of each metre."""

    name: str
    kind: CableKind
    gbit_per_second: float = Field(gt=0)
    lengths_m: tuple[float, ...] = Field(min_length=1)
    price_usd: float = Field(gt=0)
    price_usd_per_m: float = Field(ge=0)
    price_basis: PriceBasis
    watts: float = Field(ge=0)
    note: str = ""

    @property
    def price_as_of(self) -> str:
        return price_as_of(self.price_basis, self.date)

    @property
    def reach_m(self) -> float:
        return self.lengths_m[-1]

    def sold_length_m(self, needed_m: float) -> float:
        """The shortest length on sale that is long enough."""
        return next(length for length in self.lengths_m if length >= needed_m)

    def cost_usd(self, length_m: float) -> float:
        return self.price_usd + self.price_usd_per_m * length_m


@functools.cache
def cables() -> Table[Cable]:
    return read_toml("cable", Cable, "cables.toml")
