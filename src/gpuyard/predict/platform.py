"""What the step model needs to know of hardware: rates and latencies by the number of GPUs used."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.catalog import Gpu, gpus, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware.inner_ring import inner_ring, pcie_link
from gpuyard.predict.constants import Constant
from gpuyard.predict.fabric import Pipe, between_machines
from gpuyard.specs import Cluster, MachineSpec, Network


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


def _network_of(cluster: Cluster) -> Network | None:
    """The one that the spec gives, or what the catalog says is built into the named machine."""
    if cluster.network is not None or not isinstance(cluster.machine, str):
        return cluster.network
    machine = machines().get(cluster.machine)
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def platform_of(cluster: Cluster) -> Platform:
    """The cluster spec with its catalog names looked up."""
    gpu, machine = machine_of(cluster)
    used: list[Constant] = []

    def inside(gpus_used: int) -> Pipe:
        ring = inner_ring(gpu, machine.topology, machine.gpus, gpus_used)
        return Pipe(ring.bytes_per_second, ring.latency_seconds, ring.why)

    whole = inside(machine.gpus)
    used.append(Constant("link_inside", whole.bytes_per_second, "bytes/s", "catalog", whole.name))
    between: Pipe | None = None
    network = _network_of(cluster)
    if network is not None:
        between, of_network = between_machines(network)
        used += of_network
    elif cluster.nodes > 1:
        raise UserMistake(
            f"{cluster.name} has {cluster.nodes} nodes, and the catalog knows no network card of "
            f"{cluster.machine}: add a 'network' to the cluster"
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
