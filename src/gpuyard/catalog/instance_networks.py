"""The networks that cloud instances come with: which cards, how many of them, and what they speak."""

import functools

from pydantic import Field, model_validator

from gpuyard.catalog.hardware import links
from gpuyard.catalog.prices import Price
from gpuyard.catalog.tables import Fact, Table, read_csv
from gpuyard.specs import Network, Protocol


class InstanceNetwork(Fact):
    """One instance, named like its price: `rails` cards of a row of the links table, or of a rate."""

    link: str | None = None
    rails: int = Field(default=1, gt=0)
    gbit_per_second: float | None = Field(default=None, gt=0)
    """Of one card, where no row of the links table has it."""
    protocol: Protocol | None = None
    """That of the link, if left out."""
    per_flow_gbit_per_second: float | None = Field(default=None, gt=0)
    note: str = ""

    @model_validator(mode="after")
    def _link_or_rate(self) -> "InstanceNetwork":
        if (self.link is None) == (self.gbit_per_second is None):
            raise ValueError(f"{self.id} has either a link or a rate")
        return self

    @property
    def words(self) -> str:
        """ "8 × infiniband-ndr", "50 Gbit/s"."""
        rails = f"{self.rails} × " if self.rails > 1 else ""
        return f"{rails}{self.link or f'{self.gbit_per_second:g} Gbit/s'}"

    @property
    def total_gbit_per_second(self) -> float:
        """All cards together, on the wire."""
        if self.link is None:
            return self.rails * (self.gbit_per_second or 0.0)
        return self.rails * links().get(self.link).raw_gb_per_second * 8

    @property
    def network_protocol(self) -> Protocol:
        """What the cards speak."""
        if self.protocol is not None:
            return self.protocol
        rdma = self.link is not None and links().get(self.link).protocol == "rdma"
        return "rdma" if rdma else "tcp"

    @property
    def network(self) -> Network:
        """As a cluster describes it."""
        described: dict[str, object] = {"rails": self.rails, "protocol": self.protocol}
        if self.link is not None:
            described["link"] = self.link
        else:
            described["rate"] = f"{self.gbit_per_second} Gbit/s"
        if self.per_flow_gbit_per_second is not None:
            described["per_flow"] = f"{self.per_flow_gbit_per_second} Gbit/s"
        return Network.model_validate(described)


@functools.cache
def instance_networks() -> Table[InstanceNetwork]:
    return read_csv("instance with a known network", InstanceNetwork, "instance_networks.csv")


def network_of_instance(price: Price) -> InstanceNetwork | None:
    """None where nobody is known to say how such instances are joined."""
    name = price.id.partition("@")[0]
    return instance_networks().get(name) if name in instance_networks() else None
