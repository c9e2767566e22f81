"""What the step model needs to know of hardware: rates and latencies by the number of GPUs used."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuyard.catalog import Gpu, gpus, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware import (
    MOST_EXACT_GPUS,
    AllReduce,
    MachineGraph,
    all_reduce,
    best_gpus,
    host_to_gpu_bytes_per_second,
    machine_graph,
)
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant
from gpuyard.predict.platform.fabric import Fabric, Pipe, between_machines
from gpuyard.predict.platform.transport import inside_rate
from gpuyard.predict.tuning import fitted
from gpuyard.specs import Cluster, MachineSpec, Network, StrategyName


@dataclass(frozen=True)
class Platform:
    """Machines of one kind, as the step model sees them."""

    name: str
    nodes: int
    gpus_per_node: int
    inside: Callable[[int], Pipe]  # by the GPUs used in the machine
    between: Callable[[int], Pipe] | None  # by the machines used
    # by the GPUs used in the machine; None: compute reads host memory itself
    host_to_gpu_bytes_per_second: Callable[[int], float] | None
    storage_bytes_per_second: float | None
    memory_bytes: float | None  # of one GPU
    constants: tuple[Constant, ...] = ()
    link_basis: str = "assumed link"
    gpu_memory_bytes_per_second: float | None = None
    cores: float | None = None  # CPU cores of a machine that this job may use
    beside: int = 0  # equal jobs on the same machines, whose share of everything is taken off
    unshared: "Platform | None" = None  # the same with nobody else on it
    own: tuple[Constant, ...] = ()  # measured on this very hardware, in place of defaults

    @property
    def input_is_in_compute(self) -> bool:
        return self.host_to_gpu_bytes_per_second is None

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def constant(self, default: Constant) -> Constant:
        """This hardware's own, or the default."""
        return next((own for own in self.own if own.name == default.name), default)

    def overlap(self, strategy: StrategyName) -> Constant:
        default = c.default_overlap(strategy)
        # only rings are measured: what a parameter server hides is another matter
        return self.constant(default) if strategy in ("ddp", "horovod") else default


def machine_of(cluster: Cluster) -> tuple[Gpu, MachineSpec]:
    """The cluster's GPU and machine, whether named or described."""
    if isinstance(cluster.machine, str):
        known = machines().get(cluster.machine)
        machine = MachineSpec(gpu=known.gpu, gpus=known.gpus, topology=known.topology)
    else:
        machine = cluster.machine
    return gpus().get(machine.gpu), machine


def network_of(cluster: Cluster) -> Network | None:
    """The one that the spec gives, or what the catalog says is built into the named machine."""
    if cluster.network is not None or not isinstance(cluster.machine, str):
        return cluster.network
    machine = machines().get(cluster.machine)
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def ring_of(graph: MachineGraph, gpus_used: int) -> AllReduce:
    """The ring through the best GPUs of a machine."""
    if len(graph.gpus) > MOST_EXACT_GPUS:  # too many to try every choice: take the first
        return all_reduce(graph, graph.gpus[:gpus_used])
    return best_gpus(graph, gpus_used)


def rate_of(ring: AllReduce) -> float:
    """What a ring gets; one through host memory is held back by its copies, not by the slots."""
    slots = ring.wires_bytes_per_second
    across = np.array([ring.kind == "socket"])
    return float(inside_rate(np.array([slots]), np.array([ring.staged]), across, fitted())[0])


def describe(ring: AllReduce) -> str:
    """ "4 GPUs over PCIe"."""
    over = {"nvlink": "NVLink", "socket": "the link between the sockets", "none": "no link"}
    staged = ", staged through host memory" if ring.staged else ""
    return f"{len(ring.gpus)} GPUs over {over.get(ring.kind, 'PCIe')}{staged}"


def platform_of(cluster: Cluster) -> Platform:
    """The cluster spec with its catalog names looked up."""
    gpu, machine = machine_of(cluster)
    used: list[Constant] = []

    graph = machine_graph(machine.topology, gpu, machine.gpus)

    def inside(gpus_used: int) -> Pipe:
        ring = ring_of(graph, gpus_used)
        return Pipe(rate_of(ring), ring.latency_seconds * c.HOP_FACTOR.value, describe(ring))

    def host_to_gpu(gpus_used: int) -> float:
        return host_to_gpu_bytes_per_second(graph, ring_of(graph, gpus_used).gpus)

    if machine.gpus > 1:
        whole = ring_of(graph, machine.gpus)
        used.append(Constant("link_inside", rate_of(whole), "bytes/s", "catalog", describe(whole)))
        used.append(c.HOP_FACTOR)
        if whole.staged:
            used += [c.STAGED_RATE, c.STAGED_SOCKET_SHARE]
    fabric: Fabric | None = None
    network = network_of(cluster)
    if network is not None:
        fabric, of_network = between_machines(network)
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
        between=None if fabric is None else partial(fabric.pipe, tuning=fitted()),
        host_to_gpu_bytes_per_second=host_to_gpu,
        storage_bytes_per_second=cluster.storage.read if cluster.storage else None,
        memory_bytes=gpu.memory_bytes,
        constants=tuple(dict.fromkeys(used)),
        gpu_memory_bytes_per_second=gpu.memory_bytes_per_second,
        cores=machine.cores,
    )
