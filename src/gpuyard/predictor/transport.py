"""The rates and latencies that an exchange gets inside a machine and over the network between machines.

All ports of a machine together form one pipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuyard.catalog import Gpu, Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware import (
    MAX_EXACT_GPUS,
    AllReduce,
    MachineGraph,
    estimate_all_reduce,
    find_best_gpus,
    get_preset,
    host_to_gpu_bytes_per_second,
    plan_concurrent_jobs,
)
from gpuyard.hardware.rings import STAGED_BOTH_WAYS_SHARE
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import (
    Basis,
    Constant,
    LinkClass,
    Tuning,
    link_log_width,
    load_tuning,
)
from gpuyard.predictor.table import Booleans, Floats, Integers, expected_maximum
from gpuyard.specs import Network, Protocol

# NCCL plans with 2.7 µs per hop of its LL protocol over a network (NVIDIA/nccl src/graph/tuning.cc)
RDMA_HOP_SECONDS = 2.7e-6
# Tables of published training, which size the interval of a step, have GPUs without peer-to-peer access up to here.
MAX_PUBLISHED_GENERATION = 4


def inside_rate(
    link_bytes_per_second: Floats, memory_bytes_per_second: Floats, tuning: Tuning
) -> Floats:
    """Return the rate of an exchange inside a machine.

    If host memory stages it, messages get a share of the memory's rate; without staging, that rate is infinite.
    """
    return np.minimum(link_bytes_per_second, tuning.staged_memory_share * memory_bytes_per_second)


def bound_share(
    rate: Floats, staged_wires: Floats | float, log_width: Floats | float
) -> tuple[Floats, Floats]:
    """Return both ends of a rate's interval relative to it.

    Staged copies usually get a share of their wires, and never more than all of it.
    """
    with np.errstate(invalid="ignore"):  # the rate of a single GPU is infinite
        ceiling = np.nan_to_num(staged_wires / STAGED_BOTH_WAYS_SHARE / rate, nan=np.inf)
    return np.exp(-np.asarray(log_width)), np.minimum(np.exp(log_width), np.maximum(1.0, ceiling))


def between_rate(
    wire_bytes_per_second: Floats,
    tcp: Booleans,
    flow_bytes_per_second: Floats,
    nodes: Floats,
    tuning: Tuning,
    *,
    ports: Floats | float = 1.0,
) -> Floats:
    """Return the rate at which a machine sends in a ring over n machines; infinite for a single machine.

    NCCL copies the TCP traffic of each port in separate threads. A cap on one flow counts once between two machines
    and twice with three or more, when a machine has two neighbors.
    If the cap is below the wire rate, the network is shared with strangers: flows differ, and the slowest of n limits
    all.
    """
    peers = np.clip(nodes - 1, 1, 2)
    flows = flow_bytes_per_second * peers
    carried = np.minimum(wire_bytes_per_second, flows)
    slowest = 1 + (flows < wire_bytes_per_second) * tuning.tcp_variation * expected_maximum(nodes)
    copied = c.TCP_PAYLOAD.value / (1 / carried + 1 / (ports * tuning.tcp_host_bytes_per_second))
    rate = np.where(tcp, copied / slowest, tuning.rdma_share * wire_bytes_per_second)
    return np.where(nodes > 1, rate, np.inf)


def between_hop(tcp: Booleans, nodes: Floats, tuning: Tuning) -> Floats:
    hop = np.where(tcp, tuning.tcp_hop_seconds, RDMA_HOP_SECONDS * tuning.hop_factor)
    return np.where(nodes > 1, hop, 0.0)


@dataclass(frozen=True)
class Pipe:
    """A path for bytes: its rate and the latency of one hop."""

    bytes_per_second: float
    latency_seconds: float
    name: str
    switch_gain: float = 1.0  # of an all-reduce, relative to other collectives
    # both ends of the rate's 90% interval relative to it; 1: the interval of a step covers it
    low_share: float = 1.0
    high_share: float = 1.0


@dataclass(frozen=True)
class Networks:
    """The networks of many clusters, one entry each; rates are infinite without a network."""

    wire_bytes_per_second: Floats  # all ports of a machine
    flow_bytes_per_second: Floats  # all flows to one neighbor, infinite without a cap
    latency_seconds: Floats  # from the spec; NaN: the protocol's default
    tcp: Booleans
    ports: Floats  # per machine

    @classmethod
    def from_fabrics(cls, fabrics: Sequence["Fabric | None"]) -> "Networks":
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
            column([fabric.ports if fabric else 1.0 for fabric in fabrics]),
        )  # fmt: skip

    def select(self, entry: Integers) -> "Networks":
        return Networks(*(column[entry] for column in vars(self).values()))

    def exchange_rates(self, nodes: Floats, tuning: Tuning) -> tuple[Floats, Floats]:
        """Return the rate and the hop latency of an exchange over each network."""
        rate = between_rate(
            self.wire_bytes_per_second,
            self.tcp,
            self.flow_bytes_per_second,
            nodes,
            tuning,
            ports=self.ports,
        )
        hop = between_hop(self.tcp, nodes, tuning)
        return rate, np.where(np.isnan(self.latency_seconds), hop, self.latency_seconds)


@dataclass(frozen=True)
class Fabric:
    """The network of a cluster: the capacity of its ports and the pipe of an exchange over n machines."""

    name: str
    wire_bytes_per_second: float  # all ports of a machine
    flow_bytes_per_second: float  # all flows to one neighbor, infinite without a cap
    latency_seconds: float | None  # from the spec; None: the protocol's default
    tcp: bool
    ports: int = 1  # per machine
    trees: bool = False  # whether its plug-in for NCCL lets two machines exchange by trees

    def pipe(self, nodes: int, tuning: Tuning) -> Pipe:
        count = np.array([float(max(nodes, 2))])
        rate, hop = Networks.from_fabrics([self]).exchange_rates(count, tuning)
        return Pipe(float(rate[0]), float(hop[0]), self.name)


def uses_trees(fabric: Fabric | None, switch_gain: float) -> bool:
    """Return whether two machines exchange gradients by trees.

    NCCL does it where switches add up numbers (NVLS), and with plug-ins that ask for it, but not over plain TCP.
    """
    return fabric is not None and not fabric.tcp and (fabric.trees or switch_gain > 1)


def create_fabric(network: Network) -> tuple[Fabric, tuple[Constant, ...]]:
    """Create the fabric that a spec describes, and list the constants behind it."""
    link = _find_link(network)
    protocol: Protocol = network.protocol or ("rdma" if link and link.protocol == "rdma" else "tcp")
    basis: Basis = "given" if link is None else "catalog"
    port = _find_port_rate(link) if link is not None else network.rate or 0.0
    capped = network.per_flow is not None and protocol == "tcp"
    name = link.name if link is not None else f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    rails = f"{network.rails} × " if network.rails > 1 else ""
    fabric = Fabric(
        name=f"{rails}{name} ({protocol})",
        wire_bytes_per_second=port * network.rails / network.oversubscription,
        flow_bytes_per_second=(network.per_flow or 0.0) * network.flows if capped else np.inf,
        latency_seconds=network.latency,
        tcp=protocol == "tcp",
        ports=network.rails,
        trees=link is not None and link.id.startswith(_TREE_LINKS),
    )
    pipe = fabric.pipe(2, load_tuning())
    used = [Constant("link_between", pipe.bytes_per_second, "bytes/s", basis, pipe.name)]
    used += [c.TCP_PAYLOAD, c.TCP_HOST] if fabric.tcp else [c.RDMA_SHARE]
    if capped:
        used.append(c.TCP_VARIATION)
    if network.latency is None:
        used.append(c.TCP_HOP if fabric.tcp else c.HOP_FACTOR)
    return fabric, tuple(used)


# two p4d exchange at 76 GB/s over 50 GB/s of EFA (AWS's tutorial of EFA and nccl-tests)
_TREE_LINKS = "efa-"


def _find_port_rate(link: Link) -> float:
    """Return the raw rate, or less if the link reaches a smaller share of it than RDMA usually does."""
    if link.protocol != "rdma":
        return link.raw_bytes_per_second
    return min(link.raw_bytes_per_second, link.effective_bytes_per_second / c.RDMA_SHARE.value)


def _find_link(network: Network) -> Link | None:
    if network.link is None:
        return None
    link = links().get(network.link)
    if link.kind not in ("ethernet", "infiniband"):
        raise UserMistake(
            f"{network.link} connects GPUs inside a machine; a network must be Ethernet or InfiniBand"
        )
    return link


RING_NAMES = {
    "nvlink": "NVLink",
    "fabric": "links between the GPUs",
    "pcie": "PCIe",
    "socket": "the link between the sockets",
    "internal": "PCIe",
    "none": "no link",
}


@dataclass(frozen=True)
class MachineLinks:
    """The links of a machine between its GPUs and from the host to its GPUs."""

    graph: MachineGraph

    @classmethod
    def from_topology(
        cls, gpu: Gpu, gpus: int, topology: str, socket_link: str | None = None
    ) -> "MachineLinks":
        """Create the links, or raise an error if the topology does not support the GPU."""
        return cls(get_preset(topology, gpu, gpus, socket_link))

    def pipe(self, gpus_used: int, jobs: int = 1) -> Pipe:
        """Return the pipe of an exchange among some GPUs; with several such jobs, the slowest one."""
        ring = min(self._rings(gpus_used, jobs), key=ring_rate)
        unpublished = ring.staged and self.graph.slot_generation > MAX_PUBLISHED_GENERATION
        return Pipe(
            ring_rate(ring),
            ring.latency_seconds * c.HOP_FACTOR.value,
            _describe_ring(ring),
            ring.switch_gain,
            *(_bound_ring(ring) if unpublished else ()),
        )

    @property
    def slot_bytes_per_second(self) -> float:
        """The rate of a GPU's slot: no GPU sends faster over a network."""
        slots = (
            w for w in self.graph.wires if w.kind == "pcie" and self.graph.gpus[0] in (w.a, w.b)
        )
        return min((wire.bytes_per_second for wire in slots), default=np.inf)

    def host_to_gpu_bytes_per_second(self, gpus_used: int, jobs: int = 1) -> float:
        """Return the rate to each GPU while all of them receive input."""
        receiving = [gpu for ring in self._rings(gpus_used, jobs) for gpu in ring.gpus]
        return host_to_gpu_bytes_per_second(self.graph, receiving)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The constants behind the links, if there are several GPUs."""
        count = len(self.graph.gpus)
        if count == 1:
            return ()
        (whole,) = self._rings(count)
        link = Constant(
            "link_inside", ring_rate(whole), "bytes/s", "catalog", _describe_ring(whole)
        )
        staged = (c.STAGED_MEMORY_SHARE,) if whole.staged else ()
        return (link, c.HOP_FACTOR, *staged)

    def _rings(self, gpus_used: int, jobs: int = 1) -> tuple[AllReduce, ...]:
        return _find_rings(self.graph, gpus_used, jobs)


@lru_cache(maxsize=4096)
def _find_rings(graph: MachineGraph, gpus_used: int, jobs: int) -> tuple[AllReduce, ...]:
    """Return a ring through the best GPUs for each job."""
    if jobs > 1:
        return plan_concurrent_jobs(graph, gpus_used, jobs, ring_rate)
    if len(graph.gpus) > MAX_EXACT_GPUS:  # too many to try every choice: use the first
        return (estimate_all_reduce(graph, graph.gpus[:gpus_used]),)
    return (find_best_gpus(graph, gpus_used, rate=ring_rate),)


def bound_ring_rate(ring: AllReduce) -> tuple[float, float]:
    """Return the 90% interval of a ring's rate, as wide as published bus bandwidths of such links differ."""
    rate, (low, high) = ring_rate(ring), _bound_ring(ring)
    return rate * low, rate * high


def _bound_ring(ring: AllReduce) -> tuple[float, float]:
    classes: dict[str, LinkClass] = {"nvlink": "nvlink", "fabric": "nvlink"}
    link = "staged" if ring.staged else classes.get(ring.kind, "pcie")
    wires = ring.bytes_per_second if ring.staged else np.inf
    low, high = bound_share(np.array(ring_rate(ring)), wires, link_log_width(link))
    return float(low), float(high)


def ring_rate(ring: AllReduce) -> float:
    """Return the rate of a ring; all reports of a machine's all-reduce use it."""
    wires, memory = np.array(ring.bytes_per_second), np.array(ring.memory_bytes_per_second)
    return float(inside_rate(wires, memory, load_tuning()))


def _describe_ring(ring: AllReduce) -> str:
    """Return e.g. "4 GPUs over PCIe"."""
    staged = ", staged through host memory" if ring.staged else ""
    return f"{len(ring.gpus)} GPUs over {RING_NAMES[ring.kind]}{staged}"
