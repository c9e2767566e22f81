"""The time of one training step in parts, for many configurations at once.

Backward emits gradients layer by layer; buckets are exchanged while the rest of backward runs; what
does not hide is exposed. Input runs beside it all. The slowest of k noisy workers sets the pace.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.predict import collectives, exchange, horovod
from gpuyard.predict import constants as c
from gpuyard.predict.exchange import Paths
from gpuyard.predict.hierarchical import hierarchical_seconds
from gpuyard.predict.platform.transport import expected_maximum
from gpuyard.predict.strategies.buckets import Buckets
from gpuyard.specs import StrategyName

Floats = npt.NDArray[np.float64]
Exchange = StrategyName | Literal["distributed-replicated", "none"]
"""`distributed-replicated`: a parameter server whose workers are machines; `none`: jobs side by side."""


@dataclass(frozen=True)
class Configurations(Paths):
    """A table, one array a column, of what is to be predicted for one workload and strategy."""

    batch_per_gpu: Floats
    fixed_seconds: Floats
    seconds_per_sample: Floats
    host_to_gpu_bytes_per_second: Floats
    storage_bytes_per_second: Floats
    host_overhead_seconds: Floats
    accumulate: Floats = field(default_factory=lambda: np.ones(()))  # passes for one exchange
    local_sgd: Floats = field(default_factory=lambda: np.ones(()))  # updates for one averaging
    sent_share: Floats = field(default_factory=lambda: np.ones(()))  # of the buckets' bytes
    input_workers: Floats = field(default_factory=lambda: np.full((), np.inf))  # cores for each GPU


@dataclass(frozen=True)
class Traffic:
    """What the workload moves: its buckets, and the bytes of one input sample; and how much of the
    exchange hides, inside a machine and between machines, and by how much a worker among others is
    slower than alone."""

    strategy: Exchange
    buckets: Buckets
    input_bytes_per_sample: float
    storage_bytes_per_sample: float
    overlap: float
    overlap_between: float
    backward_share: float
    variation: float
    slowdown: float
    slowdown_between: float  # where they are on several machines, besides
    launch_seconds: float
    preprocess_seconds: float = 0.0  # of one core, a sample
    hierarchical: bool = False  # where it is faster than a flat ring or tree


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step, by what is waited for."""

    compute_seconds: Floats
    exposed_communication_seconds: Floats
    input_seconds: Floats
    straggler_seconds: Floats
    communication_seconds: Floats  # of one exchange, with what is hidden

    @property
    def step_seconds(self) -> Floats:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )


def step_parts(table: Configurations, traffic: Traffic) -> StepParts:
    """The model of DESIGN's "A step", vectorised over the table."""
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    total, ideal = _exchange_seconds(table, traffic, compute)
    overlap = np.where(table.nodes > 1, traffic.overlap_between, traffic.overlap)
    # parameters are averaged after an update, when there is nothing left to hide behind
    overlap = np.where(table.local_sgd > 1, 0.0, overlap)
    passes = table.accumulate * table.local_sgd
    exposed = (total - overlap * (total - ideal)) / passes + table.host_overhead_seconds
    disturbed = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        table.nodes > 1, traffic.slowdown_between, 0.0
    )
    straggling = compute * (disturbed + traffic.variation * expected_maximum(table.gpus))
    busy = compute + exposed + straggling
    input_exposed = np.maximum(0.0, _input_seconds(table, traffic) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def _exchange_seconds(
    table: Configurations, traffic: Traffic, compute: Floats
) -> tuple[Floats, Floats]:
    """All of the exchange, and what would stick out behind compute if the two did not disturb each other.

    Buckets go one after the other, each when it is full: the last one ends behind compute by the
    largest, over i, of all exchanges from bucket i on less the backward that was left at its start.
    """
    backward = compute * traffic.backward_share
    remaining = np.zeros_like(compute)
    sticks_out = np.zeros_like(compute)
    seen: dict[float, Floats] = {}  # most buckets are alike
    buckets = traffic.buckets
    for size, ready in zip(buckets.size_bytes[::-1], buckets.ready_share[::-1], strict=True):
        if size not in seen:
            seen[size] = _bucket_seconds(table, traffic, size * table.sent_share)
        remaining = remaining + seen[size]
        sticks_out = np.maximum(sticks_out, remaining - (1 - ready) * backward)
    if traffic.strategy == "horovod" and seen:
        sticks_out = sticks_out + horovod.wait_seconds(table)
    return remaining, sticks_out


def _bucket_seconds(table: Configurations, traffic: Traffic, size: Floats) -> Floats:
    match traffic.strategy:
        case "none":
            return np.zeros_like(table.nodes)
        case "ddp" | "horovod":
            flat = exchange.all_reduce_seconds(table, size, traffic.launch_seconds)
            if not traffic.hierarchical:
                return flat
            return np.minimum(flat, hierarchical_seconds(table, size, traffic.launch_seconds))
        case "parameter-server":
            return exchange.parameter_server_seconds(table, size)
        case "distributed-replicated":
            return exchange.distributed_replicated_seconds(table, size)
        case "dataparallel":
            messages = np.maximum(1.0, np.ceil(size / c.DATA_PARALLEL_BUFFER.value))
            one_way = collectives.pipelined_broadcast_seconds(
                table.gpus_per_node, size, table.inside_bytes_per_second, messages
            )
            inputs = (
                (table.gpus_per_node - 1)
                * table.batch_per_gpu
                * traffic.input_bytes_per_sample
                / table.inside_bytes_per_second
            )
            return np.where(table.gpus_per_node > 1, 2 * one_way + inputs, 0.0)


def _input_seconds(table: Configurations, traffic: Traffic) -> Floats:
    """Storage (shared by all), what CPUs do to samples and the copy to each GPU, beside each other;
    the slowest counts."""
    from_storage = (
        table.gpus
        * table.batch_per_gpu
        * traffic.storage_bytes_per_sample
        / table.storage_bytes_per_second
    )
    to_gpu = (
        table.batch_per_gpu * traffic.input_bytes_per_sample / table.host_to_gpu_bytes_per_second
    )
    prepared = table.batch_per_gpu * traffic.preprocess_seconds / table.input_workers
    return np.maximum(np.maximum(from_storage, prepared), to_gpu)


def doubled(table: Configurations, part: str) -> Configurations:
    """The same table with one part twice as fast."""
    match part:
        case "gpu":
            return replace(
                table,
                fixed_seconds=table.fixed_seconds / 2,
                seconds_per_sample=table.seconds_per_sample / 2,
            )
        case "network":
            return replace(
                table,
                between_bytes_per_second=table.between_bytes_per_second * 2,
                between_latency_seconds=table.between_latency_seconds / 2,
            )
        case "pcie":
            return replace(
                table,
                inside_bytes_per_second=table.inside_bytes_per_second * 2,
                inside_latency_seconds=table.inside_latency_seconds / 2,
                host_to_gpu_bytes_per_second=table.host_to_gpu_bytes_per_second * 2,
            )
        case "storage":
            return replace(table, storage_bytes_per_second=table.storage_bytes_per_second * 2)
        case "host":
            return replace(
                table,
                host_overhead_seconds=table.host_overhead_seconds / 2,
                input_workers=table.input_workers * 2,
            )
        case _:
            raise ValueError(part)
