"""The shapes of machines that many offers share, and the rates at which their GPUs exchange."""

import functools
from dataclasses import dataclass

from gpuyard.catalog import Gpu
from gpuyard.catalog import gpus as gpus_table
from gpuyard.predictor.transport import (
    Fabric,
    MachineLinks,
    create_fabric,
)
from gpuyard.specs import (
    Network,
    Topology,
)


@dataclass(frozen=True)
class MachineShape:
    """Machines of one kind and the network between them; without a network, one machine."""

    gpu: Gpu
    gpus: int
    topology: Topology
    network: Network | None
    network_assumed: bool = False


@dataclass(frozen=True)
class MachineRates:
    """The rates of the links inside one machine when all its GPUs exchange gradients."""

    bytes_per_second: float
    latency_seconds: float
    host_to_gpu_bytes_per_second: float
    switch_gain: float
    low_share: float
    high_share: float
    slot_bytes_per_second: float


def compute_machine_rates(gpu: Gpu, gpus: int, topology: Topology) -> MachineRates:
    """Compute the rates from the machine graph, once for all GPUs with the same wiring."""
    return _compute_rates_once(find_same_wiring(gpu), gpus, topology)


def find_same_wiring(gpu: Gpu) -> str:
    """Return the GPU that stands for all with the same wiring."""
    return _gpus_by_wiring()[_wiring_key(gpu)]


def _wiring_key(gpu: Gpu) -> tuple[object, ...]:
    """Return all properties of a GPU that a machine graph depends on."""
    return (
        gpu.pcie_generation,
        gpu.pcie_lanes,
        gpu.released if gpu.pcie_generation == 3 else None,  # decides the link between sockets
        gpu.pcie_peer_to_peer,
        gpu.peer_link,
        gpu.peer_links,
        gpu.nvlink_bridge,
        gpu.fabric_topology,
        gpu.form_factor,
        gpu.nvswitch_gpus,
        gpu.mesh_gpus,
    )


@functools.cache
def _gpus_by_wiring() -> dict[tuple[object, ...], str]:
    """Return one GPU for each wiring."""
    return {_wiring_key(gpu): gpu.id for gpu in gpus_table()}


@functools.cache
def _compute_rates_once(gpu: str, gpus: int, topology: Topology) -> MachineRates:
    machine = MachineLinks.from_topology(gpus_table().get(gpu), gpus, topology)
    pipe = machine.pipe(gpus)
    host_to_gpu = machine.host_to_gpu_bytes_per_second(gpus)
    return MachineRates(
        pipe.bytes_per_second,
        pipe.latency_seconds,
        host_to_gpu,
        pipe.switch_gain,
        pipe.low_share,
        pipe.high_share,
        machine.slot_bytes_per_second,
    )


@functools.cache
def load_fabric(network: Network) -> Fabric:
    return create_fabric(network)[0]


def format_network(network: Network) -> str:
    """Format a network as in "8 × infiniband-ndr" or "10 Gbit/s"."""
    rails = f"{network.rails} × " if network.rails > 1 else ""
    name = network.link or f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    return f"{rails}{name}"
