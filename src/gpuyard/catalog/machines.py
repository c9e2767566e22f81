"""The machines: which GPUs sit in one box, how they reach each other, and how the box reaches
the network."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_toml
from gpuyard.specs import Topology


class Machine(Fact):
    """A product, a cloud instance, or a common build.

    `gpu` is a row of the GPU table and `nic_link` one of the links table: the link that training
    traffic takes, `nics` of them. A barebone names the GPU that it is usually sold with.
    """

    name: str
    gpu: str
    gpus: int = Field(gt=0)
    topology: Topology
    nic_link: str | None = None
    nics: int = Field(default=0, ge=0)
    sockets: int = Field(gt=0)
    max_watts: float | None = Field(default=None, gt=0)
    rack_units: int | None = Field(default=None, gt=0)
    price_usd: float | None = Field(default=None, gt=0)
    note: str = ""


@functools.cache
def machines() -> Table[Machine]:
    return read_toml("machine", Machine, "machines.toml")
