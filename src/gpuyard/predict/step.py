"""The time of one training step in parts, for many configurations at once.

Backward emits gradients layer by layer; buckets are exchanged while the rest of backward runs; what
does not hide is exposed. Input runs beside it all. The slowest of k noisy workers sets the pace.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gpuyard.predict import collectives
from gpuyard.predict import constants as c
from gpuyard.predict.buckets import Buckets
from gpuyard.specs import Strategy

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Configurations:
    """A table, one array a column, of what is to be predicted for one workload and strategy."""

    nodes: Floats
    gpus_per_node: Floats
    batch_per_gpu: Floats
    fixed_seconds: Floats
    seconds_per_sample: Floats
    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite where there is only one machine
    between_latency_seconds: Floats
    host_to_gpu_bytes_per_second: Floats
    storage_bytes_per_second: Floats
    host_overhead_seconds: Floats

    @property
    def gpus(self) -> Floats:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True)
class Traffic:
    """What the workload moves: its buckets, and the bytes of one input sample."""

    strategy: Strategy
    buckets: Buckets
    input_bytes_per_sample: float
    storage_bytes_per_sample: float
    overlap: float
    variation: float


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step, by what is waited for."""

    compute_seconds: Floats
    exposed_communication_seconds: Floats
    input_seconds: Floats
    straggler_seconds: Floats
    communication_seconds: Floats  # with what is hidden

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
    exchange = _exchange_seconds(table, traffic)  # buckets × configurations
    total = exchange.sum(axis=0)
    ideal = _ideal_exposed_seconds(compute, exchange, traffic.buckets.ready_share)
    exposed = traffic.overlap * ideal + (1 - traffic.overlap) * total + table.host_overhead_seconds
    straggling = traffic.variation * compute * expected_maximum(table.gpus)
    busy = compute + exposed + straggling
    input_exposed = np.maximum(0.0, _input_seconds(table, traffic) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def _exchange_seconds(table: Configurations, traffic: Traffic) -> Floats:
    """Seconds of every bucket's exchange: rows are buckets, columns configurations."""
    size = traffic.buckets.size_bytes[:, None]
    match traffic.strategy:
        case "ddp" | "horovod":
            return _all_reduce_seconds(table, size)
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
        case "parameter-server":
            inside = 2 * size / table.inside_bytes_per_second
            between = collectives.parameter_server_seconds(
                table.gpus, table.nodes, size, table.between_bytes_per_second
            )
            latency = 2 * np.where(
                table.nodes > 1, table.between_latency_seconds, table.inside_latency_seconds
            )
            return np.where(table.gpus > 1, inside + between + latency, 0.0)


def _all_reduce_seconds(table: Configurations, size: Floats) -> Floats:
    """Flat ring, tree or hierarchical, whichever is fastest for the message, as NCCL would choose."""
    single_node = table.nodes == 1
    slowest = np.minimum(table.inside_bytes_per_second, table.between_bytes_per_second)
    hop = np.where(single_node, table.inside_latency_seconds, table.between_latency_seconds)
    # all but `nodes` of a flat ring's hops stay inside a machine
    inside_hops = np.where(single_node, 0.0, table.gpus - table.nodes)
    ring = (
        2 * inside_hops * table.inside_latency_seconds
        + 2 * (table.gpus - 1 - inside_hops) * hop
        + collectives.ring_all_reduce_seconds(table.gpus, size, slowest)
    )
    tree = collectives.tree_all_reduce_seconds(table.gpus, size, slowest, hop)
    hierarchical = collectives.hierarchical_all_reduce_seconds(
        table.gpus_per_node,
        table.nodes,
        size,
        intra_bytes_per_second=table.inside_bytes_per_second,
        intra_latency_seconds=table.inside_latency_seconds,
        inter_bytes_per_second=table.between_bytes_per_second,
        inter_latency_seconds=table.between_latency_seconds,
    )
    fastest = np.minimum(np.minimum(ring, tree), hierarchical)
    return np.where(table.gpus > 1, fastest, 0.0)


def _ideal_exposed_seconds(compute: Floats, exchange: Floats, ready_share: Floats) -> Floats:
    """What would stick out behind compute if exchange and backward did not disturb each other.

    Buckets go one after the other, each when it is full: the last one ends behind compute by the
    largest, over i, of all exchanges from bucket i on less the backward that was left at its start.
    """
    backward = compute * (1 - c.FORWARD_SHARE.value)
    still_computing = (1 - ready_share[:, None]) * backward
    remaining = np.cumsum(exchange[::-1], axis=0)[::-1]
    sticks_out: Floats = np.max(remaining - still_computing, axis=0)
    return np.maximum(0.0, sticks_out)


def _input_seconds(table: Configurations, traffic: Traffic) -> Floats:
    """Storage (shared by all) and the copy to each GPU, beside each other; the slower one counts."""
    from_storage = (
        table.gpus
        * table.batch_per_gpu
        * traffic.storage_bytes_per_sample
        / table.storage_bytes_per_second
    )
    to_gpu = (
        table.batch_per_gpu * traffic.input_bytes_per_sample / table.host_to_gpu_bytes_per_second
    )
    return np.maximum(from_storage, to_gpu)


def expected_maximum(workers: Floats) -> Floats:
    """How many σ the slowest of k normal workers lies above the mean (Blom's approximation, 1958)."""
    counts, inverse = np.unique(workers, return_inverse=True)
    normal = NormalDist()
    above = [normal.inv_cdf((k - 0.375) / (k + 0.25)) if k > 1 else 0.0 for k in counts]
    return np.array(above)[inverse]


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
            return replace(table, host_overhead_seconds=table.host_overhead_seconds / 2)
        case _:
            raise ValueError(part)
