"""What a prediction depends on, without any price: GPU, GPUs in a machine, their layout, the network.

Many offers share one shape, so each is predicted once.
"""

import functools
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.predict import platform_of
from gpuyard.predict.fabric import Fabric, between_machines
from gpuyard.specs import Cluster, MachineSpec, Network, Topology


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


@functools.cache
def inside_of(gpu: str, gpus: int, topology: Topology) -> Inside:
    """Through the machine graph; a GPU that can't be laid out so stands on two sockets."""
    try:
        return _inside(gpu, gpus, topology)
    except UserMistake:
        return _inside(gpu, gpus, "dual-socket")


def _inside(gpu: str, gpus: int, topology: Topology) -> Inside:
    machine = MachineSpec(gpu=gpu, gpus=gpus, topology=topology)
    platform = platform_of(Cluster(name=gpu, machine=machine))
    pipe = platform.inside(gpus)
    to_gpu = platform.host_to_gpu_bytes_per_second
    return Inside(
        pipe.bytes_per_second, pipe.latency_seconds, np.inf if to_gpu is None else to_gpu(gpus)
    )


@functools.cache
def _fabric(network_json: str) -> Fabric:
    return between_machines(Network.model_validate_json(network_json))[0]


def fabric_of(network: Network) -> Fabric:
    return _fabric(network.model_dump_json())


def network_name(network: Network) -> str:
    """As people would say it: "8 × infiniband-ndr", "10 Gbit/s"."""
    rails = f"{network.rails} × " if network.rails > 1 else ""
    name = network.link or f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    return f"{rails}{name}"
