"""What an exchange gets of the links inside a machine, and of the network between machines: one pipe that all
ports of a machine carry together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import Gpu, Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware import (
    MOST_EXACT_GPUS,
    AllReduce,
    MachineGraph,
    all_reduce,
    best_gpus,
    host_to_gpu_bytes_per_second,
    machine_graph,
    side_by_side,
)
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Basis, Constant, Tuning, fitted
from gpuyard.predict.table import Floats, Integers, Truths, expected_maximum
from gpuyard.specs import Network, Protocol

# NCCL plans with 2.7 µs a hop of its LL protocol over a network (NVIDIA/nccl src/graph/tuning.cc)
RDMA_HOP_SECONDS = 2.7e-6


def inside_rate(
    link_bytes_per_second: Floats, staged: Truths, across_sockets: Truths, tuning: Tuning
) -> Floats:
    """A ring inside a machine of what its wires let it run at; one that goes through host memory is held back
    by its copies besides."""
    share = np.where(across_sockets, tuning.staged_socket_share, 1.0)
    copies = tuning.staged_bytes_per_second * share
    return np.where(staged, np.minimum(link_bytes_per_second, copies), link_bytes_per_second)


def between_rate(
    wire_bytes_per_second: Floats,
    tcp: Truths,
    flow_bytes_per_second: Floats,
    nodes: Floats,
    tuning: Tuning,
) -> Floats:
    """What a machine sends in a ring over n machines; infinite where there is only one.

    A cap on one flow counts once between two machines and twice from three on, where a machine has
    two neighbours. Where that is less than the wire, flows of a network that is shared with strangers differ, and the
    slowest of n sets the pace.
    """
    peers = np.clip(nodes - 1, 1, 2)
    flows = flow_bytes_per_second * peers
    carried = np.minimum(wire_bytes_per_second, flows)
    slowest = 1 + (flows < wire_bytes_per_second) * tuning.tcp_variation * expected_maximum(nodes)
    copied = c.TCP_PAYLOAD.value / (1 / carried + 1 / tuning.tcp_host_bytes_per_second)
    rate = np.where(tcp, copied / slowest, tuning.rdma_share * wire_bytes_per_second)
    return np.where(nodes > 1, rate, np.inf)


def between_hop(tcp: Truths, nodes: Floats, tuning: Tuning) -> Floats:
    hop = np.where(tcp, tuning.tcp_hop_seconds, RDMA_HOP_SECONDS * tuning.hop_factor)
    return np.where(nodes > 1, hop, 0.0)


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


RING_WORDS = {
    "nvlink": "NVLink",
    "fabric": "links between the GPUs",
    "pcie": "PCIe",
    "socket": "the link between the sockets",
    "internal": "PCIe",
    "none": "no link",
}


@dataclass(frozen=True)
class InMachine:
    """The links between its GPUs, and to them."""

    graph: MachineGraph

    @classmethod
    def of(cls, gpu: Gpu, gpus: int, topology: str, socket_link: str | None = None) -> "InMachine":
        """Raises where such a GPU can't be laid out so."""
        return cls(machine_graph(topology, gpu, gpus, socket_link))

    def pipe(self, gpus_used: int, jobs: int = 1) -> Pipe:
        """What an exchange among so many GPUs gets: of several such jobs, the one that gets least."""
        ring = min(self._rings(gpus_used, jobs), key=ring_rate)
        return Pipe(ring_rate(ring), ring.latency_seconds * c.HOP_FACTOR.value, _describe(ring))

    def host_to_gpu_bytes_per_second(self, gpus_used: int, jobs: int = 1) -> float:
        """To each, while all of them are fed."""
        fed = [gpu for ring in self._rings(gpus_used, jobs) for gpu in ring.gpus]
        return host_to_gpu_bytes_per_second(self.graph, fed)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """What the links stand on, where there are any."""
        count = len(self.graph.gpus)
        if count == 1:
            return ()
        (whole,) = self._rings(count)
        link = Constant("link_inside", ring_rate(whole), "bytes/s", "catalog", _describe(whole))
        staged = (c.STAGED_RATE, c.STAGED_SOCKET_SHARE) if whole.staged else ()
        return (link, c.HOP_FACTOR, *staged)

    def _rings(self, gpus_used: int, jobs: int = 1) -> tuple[AllReduce, ...]:
        """Through the best of them, one for each job."""
        if jobs > 1:
            return side_by_side(self.graph, gpus_used, jobs)
        if len(self.graph.gpus) > MOST_EXACT_GPUS:  # too many to try every choice: take the first
            return (all_reduce(self.graph, self.graph.gpus[:gpus_used]),)
        return (best_gpus(self.graph, gpus_used),)


def ring_rate(ring: AllReduce) -> float:
    """What a ring gets, here and wherever else a machine's all-reduce is spoken of."""
    wires, across = np.array([ring.bytes_per_second]), np.array([ring.kind == "socket"])
    return float(inside_rate(wires, np.array([ring.staged]), across, fitted())[0])


def _describe(ring: AllReduce) -> str:
    """ "4 GPUs over PCIe"."""
    staged = ", staged through host memory" if ring.staged else ""
    return f"{len(ring.gpus)} GPUs over {RING_WORDS[ring.kind]}{staged}"
