"""What the step model needs to know of hardware: rates and latencies by the number of GPUs used."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.catalog import Gpu, gpus, links, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware.inner_ring import inner_ring, pcie_link
from gpuyard.predict.constants import Constant
from gpuyard.specs import Cluster, MachineSpec, Network


@dataclass(frozen=True)
class Pipe:
    """A way for bytes: its rate and the latency of one hop."""

    bytes_per_second: float
    latency_seconds: float
    name: str


@dataclass(frozen=True)
class Platform:
    """Machines of one kind, as the step model sees them."""

    name: str
    nodes: int
    gpus_per_node: int
    inside: Callable[[int], Pipe]  # by the GPUs used in the machine
    between: Pipe | None
    host_to_gpu_bytes_per_second: float | None  # None: compute reads host memory itself
    storage_bytes_per_second: float | None
    memory_bytes: float | None  # of one GPU
    constants: tuple[Constant, ...] = ()
    link_basis: str = "assumed link"

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


def machine_of(cluster: Cluster) -> tuple[Gpu, MachineSpec]:
    """The cluster's GPU and machine, whether named or described."""
    if isinstance(cluster.machine, str):
        known = machines().get(cluster.machine)
        machine = MachineSpec(gpu=known.gpu, gpus=known.gpus, topology=known.topology)
    else:
        machine = cluster.machine
    return gpus().get(machine.gpu), machine


def platform_of(cluster: Cluster) -> Platform:
    """The cluster spec with its catalog names looked up."""
    gpu, machine = machine_of(cluster)
    used: list[Constant] = []

    def inside(gpus_used: int) -> Pipe:
        ring = inner_ring(gpu, machine.topology, machine.gpus, gpus_used)
        return Pipe(ring.bytes_per_second, ring.latency_seconds, ring.why)

    whole = inside(machine.gpus)
    used.append(Constant("link_inside", whole.bytes_per_second, "bytes/s", "catalog", whole.name))
    between = _between(cluster.network) if cluster.network else None
    if between is not None:
        used.append(
            Constant("link_between", between.bytes_per_second, "bytes/s", "catalog", between.name)
        )
    return Platform(
        name=cluster.name,
        nodes=cluster.nodes,
        gpus_per_node=machine.gpus,
        inside=inside,
        between=between,
        host_to_gpu_bytes_per_second=pcie_link(gpu).effective_bytes_per_second,
        storage_bytes_per_second=cluster.storage.read if cluster.storage else None,
        memory_bytes=gpu.memory_bytes,
        constants=tuple(used),
    )


# what of a wire's rate arrives as payload where only the rate is given: Ethernet frames of 1,500
# bytes with TCP/IP headers carry 1,448 of 1,538 bytes; InfiniBand packets of 4 KiB lose about 3 %
_PAYLOAD_SHARE = {"tcp": 0.94, "rdma": 0.97}
_DEFAULT_LATENCY_SECONDS = {"tcp": 30e-6, "rdma": 5e-6}


def _between(network: Network) -> Pipe:
    """All the ports of one machine together."""
    if network.link is not None:
        link = links().get(network.link)
        if link.kind not in ("ethernet", "infiniband"):
            raise UserMistake(f"{network.link} joins GPUs inside a machine, not machines")
        protocol = network.protocol or ("rdma" if link.protocol == "rdma" else "tcp")
        port = link.effective_bytes_per_second
        latency = link.latency_seconds
        if protocol != link.protocol:
            port = link.raw_bytes_per_second * _PAYLOAD_SHARE[protocol]
            latency = _DEFAULT_LATENCY_SECONDS[protocol]
        name = link.name
    elif network.rate is not None:
        protocol = network.protocol or "tcp"
        port = network.rate * _PAYLOAD_SHARE[protocol]
        latency = _DEFAULT_LATENCY_SECONDS[protocol]
        name = f"{network.rate * 8 / 1e9:g} Gbit/s"
    else:
        raise UserMistake("a network has either 'link' or 'rate'")
    rate = port * network.rails / network.oversubscription
    if network.per_flow is not None and protocol == "tcp":
        rate = min(rate, network.per_flow * network.flows)
    if network.latency is not None:
        latency = network.latency
    rails = f"{network.rails} × " if network.rails > 1 else ""
    return Pipe(rate, latency, f"{rails}{name} ({protocol})")
