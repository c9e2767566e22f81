"""Every combination of some numbers of machines, batches, link rates, precisions and strategies at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile, gpus, models
from gpuyard.predict import constants as c
from gpuyard.predict.compute import roofline
from gpuyard.predict.platform.fabric import Pipe
from gpuyard.predict.platform.platform import platform_of
from gpuyard.predict.platform.transport import between_hop, between_rate
from gpuyard.predict.step import Configurations, Floats, Traffic, step_parts
from gpuyard.predict.strategies.buckets import pack
from gpuyard.predict.tuning import fitted
from gpuyard.specs import Cluster, MachineSpec, Precision, StrategyName, Topology

# rows of a table that are worked on at once: some dozens of arrays of them stay in a core's cache
CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Sweep:
    """What is combined with what: one model on full machines of one kind."""

    model: str
    gpu: str
    gpus_per_node: int
    topology: Topology
    nodes: tuple[int, ...]
    batches: tuple[int, ...]
    link_bytes_per_second: tuple[float, ...]  # of a machine's port, over RDMA
    precisions: tuple[Precision, ...]
    strategies: tuple[StrategyName, ...]


@dataclass(frozen=True)
class Swept:
    """One entry a combination; strategies vary slowest, then precisions, nodes, batches and rates."""

    samples_per_second: Floats
    scaling_efficiency: Floats


def sweep(asked: Sweep) -> Swept:
    """Predict every combination."""
    profile, gpu = models().get(asked.model), gpus().get(asked.gpu)
    grids = np.meshgrid(asked.nodes, asked.batches, asked.link_bytes_per_second, indexing="ij")
    nodes, batches, rates = (grid.ravel().astype(float) for grid in grids)
    inside = _inside(asked)
    throughput: list[Floats] = []
    efficiency: list[Floats] = []
    for strategy in asked.strategies:
        traffic = _traffic(profile, strategy)
        for precision in asked.precisions:
            line = roofline(profile, gpu, precision)
            for part in _chunks(len(nodes)):
                compute = line.fixed_seconds + batches[part] * line.seconds_per_sample
                table = _table(asked, inside, nodes[part], rates[part], compute)
                seconds = step_parts(table, traffic).step_seconds
                throughput.append(table.gpus * batches[part] / seconds)
                efficiency.append(compute / seconds)
    return Swept(np.concatenate(throughput), np.concatenate(efficiency))


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, start + CHUNK_ROWS)


def _inside(asked: Sweep) -> Pipe:
    machine = MachineSpec(gpu=asked.gpu, gpus=asked.gpus_per_node, topology=asked.topology)
    return platform_of(Cluster(name=asked.gpu, machine=machine)).inside(asked.gpus_per_node)


def _table(
    asked: Sweep, inside: Pipe, nodes: Floats, rates: Floats, compute: Floats
) -> Configurations:
    rdma = np.zeros(len(nodes), dtype=bool)
    nothing, endless = np.zeros(len(nodes)), np.full(len(nodes), np.inf)
    return Configurations(
        nodes=nodes,
        gpus_per_node=np.full(len(nodes), float(asked.gpus_per_node)),
        inside_bytes_per_second=np.full(len(nodes), inside.bytes_per_second),
        inside_latency_seconds=np.full(len(nodes), inside.latency_seconds),
        between_bytes_per_second=between_rate(rates, rdma, rates, nodes, fitted()),
        between_latency_seconds=between_hop(rdma, nodes, fitted()),
        batch_per_gpu=nothing,
        fixed_seconds=compute,
        seconds_per_sample=nothing,
        host_to_gpu_bytes_per_second=endless,
        storage_bytes_per_second=endless,
        host_overhead_seconds=nothing,
    )


def _traffic(profile: ModelProfile, strategy: StrategyName) -> Traffic:
    return Traffic(
        strategy=strategy,
        buckets=pack(profile, strategy),
        input_bytes_per_sample=0.0,
        storage_bytes_per_sample=0.0,
        overlap=c.default_overlap(strategy).value,
        overlap_between=c.default_overlap_between(strategy).value,
        backward_share=c.BACKWARD_SHARE.value,
        variation=c.GPU_VARIATION.value,
        slowdown=c.SLOWDOWN.value,
        slowdown_between=c.default_slowdown_between(strategy),
        launch_seconds=c.LAUNCH.value,
    )
