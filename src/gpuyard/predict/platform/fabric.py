"""The network between machines as one pipe: what all ports of a machine carry together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Basis, Constant
from gpuyard.predict.platform.transport import between_hop, between_rate
from gpuyard.predict.table import Floats, Integers, Truths
from gpuyard.predict.tuning import Tuning, fitted
from gpuyard.specs import Network, Protocol


@dataclass(frozen=True)
class Pipe:
    """A way for bytes: its rate and the latency of one hop."""

    bytes_per_second: float
    latency_seconds: float
    name: str


@dataclass(frozen=True)
class Networks:
    """The networks of many clusters, one entry each; infinite where there is none."""

    wire_bytes_per_second: Floats  # all ports of a machine
    flow_bytes_per_second: Floats  # all flows to one neighbour, infinite where nothing caps them
    latency_seconds: Floats  # as given; not a number: by protocol
    tcp: Truths

    @classmethod
    def of(cls, fabrics: Sequence["Fabric | None"]) -> "Networks":
        def column(values: list[float]) -> Floats:
            return np.array(values, dtype=float)

        return cls(
            column([fabric.wire_bytes_per_second if fabric else np.inf for fabric in fabrics]),
            column([fabric.flow_bytes_per_second if fabric else np.inf for fabric in fabrics]),
            column(
                [np.nan if f is None or f.latency_seconds is None else f.latency_seconds
                 for f in fabrics]
            ),
            np.array([fabric is not None and fabric.tcp for fabric in fabrics], dtype=bool),
        )  # fmt: skip

    def take(self, entry: Integers) -> "Networks":
        return Networks(*(column[entry] for column in vars(self).values()))

    def between(self, nodes: Floats, tuning: Tuning) -> tuple[Floats, Floats]:
        """What an exchange over so many machines gets of each: its rate, and the latency of one hop."""
        rate = between_rate(
            self.wire_bytes_per_second, self.tcp, self.flow_bytes_per_second, nodes, tuning
        )
        hop = between_hop(self.tcp, nodes, tuning)
        return rate, np.where(np.isnan(self.latency_seconds), hop, self.latency_seconds)


@dataclass(frozen=True)
class Fabric:
    """The network of a cluster: what its ports could carry, and what an exchange over n machines gets."""

    name: str
    wire_bytes_per_second: float  # all ports of a machine
    flow_bytes_per_second: float  # all flows to one neighbour, infinite where nothing caps them
    latency_seconds: float | None  # as given; None: by protocol
    tcp: bool

    def pipe(self, nodes: int, tuning: Tuning) -> Pipe:
        count = np.array([float(max(nodes, 2))])
        rate, hop = Networks.of([self]).between(count, tuning)
        return Pipe(float(rate[0]), float(hop[0]), self.name)


def between_machines(network: Network) -> tuple[Fabric, tuple[Constant, ...]]:
    """The fabric that a spec describes, and the constants behind it."""
    link = _link(network)
    protocol: Protocol = network.protocol or ("rdma" if link and link.protocol == "rdma" else "tcp")
    basis: Basis = "given" if link is None else "catalog"
    port = link.raw_bytes_per_second if link is not None else network.rate or 0.0
    capped = network.per_flow is not None and protocol == "tcp"
    name = link.name if link is not None else f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    rails = f"{network.rails} × " if network.rails > 1 else ""
    fabric = Fabric(
        name=f"{rails}{name} ({protocol})",
        wire_bytes_per_second=port * network.rails / network.oversubscription,
        flow_bytes_per_second=(network.per_flow or 0.0) * network.flows if capped else np.inf,
        latency_seconds=network.latency,
        tcp=protocol == "tcp",
    )
    pipe = fabric.pipe(2, fitted())
    used = [Constant("link_between", pipe.bytes_per_second, "bytes/s", basis, pipe.name)]
    used += [c.TCP_PAYLOAD, c.TCP_HOST] if fabric.tcp else [c.RDMA_SHARE]
    if capped:
        used.append(c.TCP_VARIATION)
    if network.latency is None:
        used.append(c.TCP_HOP if fabric.tcp else c.HOP_FACTOR)
    return fabric, tuple(used)


def _link(network: Network) -> Link | None:
    if network.link is None:
        return None
    link = links().get(network.link)
    if link.kind not in ("ethernet", "infiniband"):
        raise UserMistake(f"{network.link} joins GPUs inside a machine, not machines")
    return link
