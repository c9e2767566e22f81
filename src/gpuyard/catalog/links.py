"""The links that carry gradients: inside a machine, between its sockets, and between machines."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_toml

Kind = Literal["pcie", "nvlink", "socket", "ethernet", "infiniband", "memory"]
Protocol = Literal["tcp", "rdma", "peer"]
Basis = Literal["measured", "planning", "derived", "assumed"]


class Link(Fact):
    """One link, one direction. The basis says how far to trust the effective rate: somebody
    measured it, NCCL plans with it, it follows from the frame format, or it is a guess."""

    name: str
    kind: Kind
    raw_gb_per_second: float = Field(gt=0)
    effective_gb_per_second: float = Field(gt=0)
    latency_us: float = Field(gt=0)
    """One hop of a small message inside a collective."""
    protocol: Protocol
    basis: Basis
    note: str = ""

    @property
    def raw_bytes_per_second(self) -> float:
        return self.raw_gb_per_second * 1e9

    @property
    def effective_bytes_per_second(self) -> float:
        return self.effective_gb_per_second * 1e9

    @property
    def latency_seconds(self) -> float:
        return self.latency_us * 1e-6


@functools.cache
def links() -> Table[Link]:
    return read_toml("link", Link, "links.toml")
