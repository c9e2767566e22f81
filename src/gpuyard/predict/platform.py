"""What the step model needs to know of hardware: rates and latencies by the number of GPUs used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpuyard.catalog import Gpu, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, fitted
from gpuyard.predict.table import Configurations, Floats, HardwareRates, Integers, Placement, place
from gpuyard.predict.transport import InMachine, Pipe, between_machines
from gpuyard.specs import Cluster, Dataset, MachineSpec, Network

_ALONE = Pipe(np.inf, 0.0, "one machine")


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
    other_jobs: int = 0  # equal jobs on the same machines, whose share of everything is taken off
    unshared: "Platform | None" = None  # the same with nobody else on it
    own: tuple[Constant, ...] = ()  # measured on this very hardware, in place of defaults

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def constant(self, default: Constant) -> Constant:
        """This hardware's own, or the default."""
        return next((own for own in self.own if own.name == default.name), default)

    def placements(
        self, gpus: Sequence[int], gpus_per_node: int | None = None
    ) -> tuple[Placement, ...]:
        """Where jobs of so many GPUs would run."""
        return tuple(place(count, self.nodes, self.gpus_per_node, gpus_per_node) for count in gpus)

    def links(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates:
        """What each row gets."""
        if rows.fullest is None:
            raise ValueError("rows of a platform say how many GPUs of a machine are used")
        used, at = np.unique(rows.fullest, return_inverse=True)
        machines_used, on = np.unique(rows.nodes, return_inverse=True)
        inside = [self.inside(int(count)) for count in used]
        between = [self._between(int(count)) for count in machines_used]
        host_to_gpu = self.host_to_gpu_bytes_per_second or (lambda _: np.inf)
        storage, memory = self.storage_bytes_per_second, self.gpu_memory_bytes_per_second
        return HardwareRates(
            inside_bytes_per_second=np.array([pipe.bytes_per_second for pipe in inside])[at],
            inside_latency_seconds=np.array([pipe.latency_seconds for pipe in inside])[at],
            between_bytes_per_second=np.array([pipe.bytes_per_second for pipe in between])[on],
            between_latency_seconds=np.array([pipe.latency_seconds for pipe in between])[on],
            host_to_gpu_bytes_per_second=np.array([host_to_gpu(int(count)) for count in used])[at],
            storage_bytes_per_second=np.full(len(at), np.inf if storage is None else storage),
            input_workers=self._input_workers(dataset, used.astype(float))[at],
            gpu_memory_bytes_per_second=None if memory is None else np.full(len(at), memory),
        )

    def input_constants(self, dataset: Dataset | None) -> tuple[Constant, ...]:
        """What had to be assumed about what feeds a GPU."""
        if dataset is None or not self._feeds(dataset):
            return ()
        known = dataset.input_workers is not None or self.cores is not None
        return () if known else (c.INPUT_WORKERS,)

    def _feeds(self, dataset: Dataset) -> bool:
        return dataset.preprocess is not None and self.host_to_gpu_bytes_per_second is not None

    def _input_workers(self, dataset: Dataset | None, gpus_used: Floats) -> Floats:
        """How many cores work for one GPU's input: its workers, or its share of the machine's cores."""
        if dataset is None or not self._feeds(dataset):
            return np.full_like(gpus_used, np.inf)
        if self.cores is None:
            return np.full_like(gpus_used, dataset.input_workers or c.INPUT_WORKERS.value)
        share = self.cores / gpus_used
        workers = dataset.input_workers
        return share if workers is None else np.minimum(float(workers), share)

    def _between(self, nodes: int) -> Pipe:
        if nodes == 1:
            return _ALONE
        if self.between is None:
            raise ValueError("placements on several nodes need a network")
        return self.between(nodes)


def network_of(cluster: Cluster) -> Network | None:
    """The one that the spec gives, or what the catalog says is built into the named machine."""
    if cluster.network is not None or not isinstance(cluster.machine, str):
        return cluster.network
    machine = machines().get(cluster.machine)
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def platform_of(cluster: Cluster, graph: MachineGraph | None = None) -> Platform:
    """The cluster spec with its catalog names looked up; `graph` is how its machines are really wired, where
    somebody looked."""
    gpu, machine = machine_of(cluster)
    network = network_of(cluster)
    if network is None and cluster.nodes > 1:
        raise UserMistake(
            f"{cluster.name} has {cluster.nodes} nodes, and the catalog knows no network card of "
            f"{cluster.machine}: add a 'network' to the cluster"
        )
    described = platform_from(cluster.name, gpu, machine, network, graph)
    storage = cluster.storage.read if cluster.storage else None
    return replace(described, nodes=cluster.nodes, storage_bytes_per_second=storage)


def platform_from(
    name: str,
    gpu: Gpu,
    machine: MachineSpec,
    network: Network | None = None,
    graph: MachineGraph | None = None,
) -> Platform:
    """One machine, and what would join it to others."""
    there = (
        InMachine(graph)
        if graph
        else InMachine.of(gpu, machine.gpus, machine.topology, machine.socket_link)
    )
    fabric, of_network = between_machines(network) if network else (None, ())
    return Platform(
        name=name,
        nodes=1,
        gpus_per_node=machine.gpus,
        inside=there.pipe,
        between=partial(fabric.pipe, tuning=fitted()) if fabric else None,
        host_to_gpu_bytes_per_second=there.host_to_gpu_bytes_per_second,
        storage_bytes_per_second=None,
        memory_bytes=gpu.memory_bytes,
        constants=tuple(dict.fromkeys((*there.constants, *of_network))),
        gpu_memory_bytes_per_second=gpu.memory_bytes_per_second,
        cores=machine.cores,
    )


def shared(
    platform: Platform, cluster: Cluster, other_jobs: int, graph: MachineGraph | None = None
) -> Platform:
    """The platform as one of `other_jobs + 1` jobs sees it."""
    if not other_jobs:
        return platform
    jobs = other_jobs + 1
    gpu, machine = machine_of(cluster)
    there = (
        InMachine(graph)
        if graph
        else InMachine.of(gpu, machine.gpus, machine.topology, machine.socket_link)
    )

    def inside(gpus_used: int) -> Pipe:
        alone, crowded = platform.inside(gpus_used), there.pipe(gpus_used, jobs)
        rate = min(alone.bytes_per_second, crowded.bytes_per_second)
        return Pipe(rate, alone.latency_seconds, crowded.name)

    network = network_of(cluster)
    fabric = between_machines(network)[0] if network else None
    if fabric is not None:
        fabric = replace(
            fabric,
            name=f"{fabric.name}, shared by {jobs} jobs",
            # a cap on one flow holds for each job's flows; the ports are what they share
            wire_bytes_per_second=fabric.wire_bytes_per_second / jobs,
        )
    storage, cores = platform.storage_bytes_per_second, platform.cores
    return replace(
        platform,
        inside=inside,
        between=partial(fabric.pipe, tuning=fitted()) if fabric else None,
        host_to_gpu_bytes_per_second=partial(there.host_to_gpu_bytes_per_second, jobs=jobs),
        storage_bytes_per_second=None if storage is None else storage / jobs,
        cores=None if cores is None else cores / jobs,
        other_jobs=other_jobs,
        unshared=platform,
    )


@dataclass(frozen=True)
class Fleet:
    """One entry a spot: a number of machines of one kind on one network, all GPUs of them used. It has
    neither storage nor cores that could be short, and nothing was measured on it."""

    nodes: Floats
    gpus_per_node: Floats
    of_spots: HardwareRates

    def rows(self, spot: Integers, batch_per_gpu: Floats) -> Configurations:
        return Configurations(self.nodes[spot], self.gpus_per_node[spot], batch_per_gpu, spot=spot)

    def constant(self, default: Constant) -> Constant:
        return default

    def links(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates:  # noqa: ARG002
        """What each row gets."""
        if rows.spot is None:
            raise ValueError("rows of a fleet say which of its spots they are about")
        return self.of_spots.take(rows.spot)
