"""What a prediction depends on, without any price: GPU, GPUs in a machine, their layout, the network.

Many offers share one shape, so each is predicted once.
"""

import functools
from dataclasses import dataclass

from gpuyard.catalog import Gpu
from gpuyard.catalog import gpus as gpus_table
from gpuyard.predict.transport import Fabric, InMachine, between_machines
from gpuyard.specs import Network, Topology


@dataclass(frozen=True)
class Shape:
    """Machines of one kind and how they are joined; without a network it is one machine."""

    gpu: Gpu
    gpus: int
    topology: Topology
    network: Network | None


@dataclass(frozen=True)
class Inside:
    """What full use of one machine gets of its links."""

    bytes_per_second: float
    latency_seconds: float
    host_to_gpu_bytes_per_second: float


def inside_of(gpu: Gpu, gpus: int, topology: Topology) -> Inside:
    """Through the machine graph; GPUs that are wired alike share one."""
    return _inside_like(_wired_alike()[_wiring(gpu)], gpus, topology)


def _wiring(gpu: Gpu) -> tuple[object, ...]:
    """All that a machine graph knows of a GPU."""
    return (
        gpu.pcie_generation,
        gpu.pcie_lanes,
        gpu.released if gpu.pcie_generation == 3 else None,  # decides the link between sockets
        gpu.pcie_peer_to_peer,
        gpu.own_link,
        gpu.own_links,
        gpu.nvlink_bridge,
        gpu.fabric_topology,
    )


@functools.cache
def _wired_alike() -> dict[tuple[object, ...], str]:
    """One GPU for each wiring."""
    return {_wiring(gpu): gpu.id for gpu in gpus_table()}


@functools.cache
def _inside_like(gpu: str, gpus: int, topology: Topology) -> Inside:
    machine = InMachine.of(gpus_table().get(gpu), gpus, topology)
    pipe = machine.pipe(gpus)
    to_gpu = machine.host_to_gpu_bytes_per_second(gpus)
    return Inside(pipe.bytes_per_second, pipe.latency_seconds, to_gpu)


@functools.cache
def fabric_of(network: Network) -> Fabric:
    return between_machines(network)[0]


def network_name(network: Network) -> str:
    """As people would say it: "8 × infiniband-ndr", "10 Gbit/s"."""
    rails = f"{network.rails} × " if network.rails > 1 else ""
    name = network.link or f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    return f"{rails}{name}"
