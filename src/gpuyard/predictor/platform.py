"""Hardware as the step model needs it: rates and latencies by the number of GPUs used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpuyard.catalog import Gpu, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Constant, load_tuning
from gpuyard.predictor.placement import Placement, place
from gpuyard.predictor.table import Configurations, Floats, HardwareRates, Integers
from gpuyard.predictor.transport import Fabric, MachineLinks, Pipe, create_fabric, uses_trees
from gpuyard.specs import Cluster, Dataset, MachineSpec, Network

_SINGLE_MACHINE = Pipe(np.inf, 0.0, "one machine")


@dataclass(frozen=True)
class Platform:
    """Machines of one kind, as the step model sees them."""

    name: str
    nodes: int
    gpus_per_node: int
    inside: Callable[[int], Pipe]  # by the GPUs used in the machine
    between: Callable[[int], Pipe] | None  # by the machines used
    # by the GPUs used in the machine; None: compute reads host memory directly
    host_to_gpu_bytes_per_second: Callable[[int], float] | None
    storage_bytes_per_second: float | None
    memory_bytes: float | None  # per GPU
    constants: tuple[Constant, ...] = ()
    link_basis: str = "assumed link"
    gpu_memory_bytes_per_second: float | None = None
    cores: float | None = None  # CPU cores of a machine that this job may use
    slot_bytes_per_second: float = np.inf  # of one GPU
    fabric: Fabric | None = None
    other_jobs: int = 0  # identical jobs on the same machines; their share is already deducted
    unshared: "Platform | None" = None  # the platform without other jobs
    measured: tuple[Constant, ...] = ()  # on this hardware, replacing defaults

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def resolve_constant(self, default: Constant) -> Constant:
        """Return the constant measured on this hardware, or the default."""
        return next((c for c in self.measured if c.name == default.name), default)

    def placements(
        self, gpus: Sequence[int], gpus_per_node: int | None = None
    ) -> tuple[Placement, ...]:
        """Return a placement for each number of GPUs."""
        return tuple(place(count, self.nodes, self.gpus_per_node, gpus_per_node) for count in gpus)

    def find_rates(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates:
        """Return the rates of each row."""
        if rows.max_gpus_per_node is None:
            raise ValueError("rows of a platform need max_gpus_per_node")
        used, at = np.unique(rows.max_gpus_per_node, return_inverse=True)
        machines_used, on = np.unique(rows.nodes, return_inverse=True)
        inside = [self.inside(int(count)) for count in used]
        between = [self._between(int(count)) for count in machines_used]
        host_to_gpu = self.host_to_gpu_bytes_per_second or (lambda _: np.inf)
        storage, memory = self.storage_bytes_per_second, self.gpu_memory_bytes_per_second
        return HardwareRates(
            inside_bytes_per_second=np.array([pipe.bytes_per_second for pipe in inside])[at],
            inside_latency_seconds=np.array([pipe.latency_seconds for pipe in inside])[at],
            between_bytes_per_second=np.minimum(
                np.array([pipe.bytes_per_second for pipe in between])[on],
                # GPUs send to the network over their slots
                np.where(rows.nodes > 1, rows.gpus_per_node * self.slot_bytes_per_second, np.inf),
            ),
            between_latency_seconds=np.array([pipe.latency_seconds for pipe in between])[on],
            host_to_gpu_bytes_per_second=np.array([host_to_gpu(int(count)) for count in used])[at],
            storage_bytes_per_second=np.full(len(at), np.inf if storage is None else storage),
            input_workers=self._input_workers(dataset, used.astype(float))[at],
            gpu_memory_bytes_per_second=None if memory is None else np.full(len(at), memory),
            switch_gain=np.array([pipe.switch_gain for pipe in inside])[at],
            trees=np.array(
                [uses_trees(self.fabric, pipe.switch_gain) for pipe in inside], dtype=bool
            )[at],
            inside_low_share=np.array([pipe.low_share for pipe in inside])[at],
            inside_high_share=np.array([pipe.high_share for pipe in inside])[at],
        )

    def input_constants(self, dataset: Dataset | None) -> tuple[Constant, ...]:
        """Return the assumed constants of the input path."""
        if dataset is None or not self._needs_workers(dataset):
            return ()
        is_known = dataset.input_workers is not None or self.cores is not None
        return () if is_known else (c.INPUT_WORKERS,)

    def _needs_workers(self, dataset: Dataset) -> bool:
        return dataset.preprocess is not None and self.host_to_gpu_bytes_per_second is not None

    def _input_workers(self, dataset: Dataset | None, gpus_used: Floats) -> Floats:
        """Return the number of cores for one GPU's input: its workers, or its share of the machine's cores."""
        if dataset is None or not self._needs_workers(dataset):
            return np.full_like(gpus_used, np.inf)
        if self.cores is None:
            return np.full_like(gpus_used, dataset.input_workers or c.INPUT_WORKERS.value)
        share = self.cores / gpus_used
        workers = dataset.input_workers
        return share if workers is None else np.minimum(float(workers), share)

    def _between(self, nodes: int) -> Pipe:
        if nodes == 1:
            return _SINGLE_MACHINE
        if self.between is None:
            raise ValueError("placements on several nodes need a network")
        return self.between(nodes)


def find_network(cluster: Cluster) -> Network | None:
    """Return the network of the spec, or the one built into the named catalog machine."""
    if cluster.network is not None or not isinstance(cluster.machine, str):
        return cluster.network
    machine = machines().get(cluster.machine)
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def create_platform(cluster: Cluster, graph: MachineGraph | None = None) -> Platform:
    """Create the platform of a cluster spec; `graph` is the discovered wiring of its machines, if known."""
    gpu, machine = resolve_machine(cluster)
    network = find_network(cluster)
    if network is None and cluster.nodes > 1:
        raise UserMistake(
            f"{cluster.name} has {cluster.nodes} nodes, but the catalog has no network card for "
            f"{cluster.machine}: add a 'network' to the cluster"
        )
    platform = create_machine_platform(cluster.name, gpu, machine, network, graph)
    storage = cluster.storage.read if cluster.storage else None
    return replace(platform, nodes=cluster.nodes, storage_bytes_per_second=storage)


def create_machine_platform(
    name: str,
    gpu: Gpu,
    machine: MachineSpec,
    network: Network | None = None,
    graph: MachineGraph | None = None,
) -> Platform:
    """Create the platform of one machine and of the network that would connect it to others."""
    links = _create_links(gpu, machine, graph)
    fabric, network_constants = create_fabric(network) if network else (None, ())
    return Platform(
        name=name,
        nodes=1,
        gpus_per_node=machine.gpus,
        inside=links.pipe,
        between=partial(fabric.pipe, tuning=load_tuning()) if fabric else None,
        host_to_gpu_bytes_per_second=links.host_to_gpu_bytes_per_second,
        storage_bytes_per_second=None,
        memory_bytes=gpu.memory_bytes,
        constants=tuple(dict.fromkeys((*links.constants, *network_constants))),
        gpu_memory_bytes_per_second=gpu.memory_bytes_per_second,
        cores=machine.cores,
        slot_bytes_per_second=links.slot_bytes_per_second,
        fabric=fabric,
    )


def _create_links(gpu: Gpu, machine: MachineSpec, graph: MachineGraph | None) -> MachineLinks:
    if graph:
        return MachineLinks(graph)
    return MachineLinks.from_topology(gpu, machine.gpus, machine.topology, machine.socket_link)


def share_platform(
    platform: Platform, cluster: Cluster, other_jobs: int, graph: MachineGraph | None = None
) -> Platform:
    """Return the platform as one of `other_jobs + 1` jobs sees it."""
    if not other_jobs:
        return platform
    jobs = other_jobs + 1
    links = _create_links(*resolve_machine(cluster), graph)

    def inside(gpus_used: int) -> Pipe:
        alone, contended = platform.inside(gpus_used), links.pipe(gpus_used, jobs)
        rate = min(alone.bytes_per_second, contended.bytes_per_second)
        return replace(alone, bytes_per_second=rate, name=contended.name)

    network = find_network(cluster)
    fabric = create_fabric(network)[0] if network else None
    if fabric is not None:
        fabric = replace(
            fabric,
            name=f"{fabric.name}, shared by {jobs} jobs",
            # a cap on one flow applies to each job's flows; only the ports are shared
            wire_bytes_per_second=fabric.wire_bytes_per_second / jobs,
        )
    storage, cores = platform.storage_bytes_per_second, platform.cores
    return replace(
        platform,
        inside=inside,
        between=partial(fabric.pipe, tuning=load_tuning()) if fabric else None,
        host_to_gpu_bytes_per_second=partial(links.host_to_gpu_bytes_per_second, jobs=jobs),
        storage_bytes_per_second=None if storage is None else storage / jobs,
        cores=None if cores is None else cores / jobs,
        other_jobs=other_jobs,
        unshared=platform,
    )


@dataclass(frozen=True)
class Fleet:
    """Many clusters at once, one entry each: identical machines on one network with all GPUs used.

    A fleet is limited neither by storage nor by cores, and nothing was measured on it.
    """

    nodes: Floats
    gpus_per_node: Floats
    rates: HardwareRates

    def select_rows(self, index: Integers, batch_per_gpu: Floats) -> Configurations:
        return Configurations(
            self.nodes[index], self.gpus_per_node[index], batch_per_gpu, fleet_index=index
        )

    def resolve_constant(self, default: Constant) -> Constant:
        return default

    def find_rates(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates:  # noqa: ARG002
        """Return the rates of each row."""
        if rows.fleet_index is None:
            raise ValueError("rows of a fleet need fleet_index")
        return self.rates.select(rows.fleet_index)
