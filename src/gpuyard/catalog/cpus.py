"""CPUs by what they offer cards: how many PCIe lanes, of which generation, in how many sockets."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_toml
from gpuyard.errors import UserMistake


class Cpu(Fact):
    """One CPU; its lanes are those that reach slots, without those of the chipset."""

    name: str
    vendor: Literal["Intel", "AMD"]
    family: str
    cores: int = Field(gt=0)
    most_sockets: int = Field(gt=0)
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: int = Field(gt=0)
    lanes_of_two: int | None = Field(default=None, gt=0)
    """Of two sockets together: AMD's give lanes to each other."""
    note: str = ""

    def lanes(self, sockets: int) -> int:
        """Of all sockets of a machine; a mistake where it can't have so many."""
        if sockets > self.most_sockets:
            raise UserMistake(
                f"{self.id} goes into machines with up to {self.most_sockets} sockets, got {sockets}"
            )
        if sockets == 2 and self.lanes_of_two is not None:
            return self.lanes_of_two
        return sockets * self.pcie_lanes


@functools.cache
def cpus() -> Table[Cpu]:
    return read_toml("CPU", Cpu, "cpus.toml")
