"""The time of one training step in parts, for many configurations at once.

Backward emits gradients layer by layer; buckets are exchanged while the rest of backward runs; what
does not hide is exposed. Input runs beside it all. The slowest of k noisy workers sets the pace.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.predict.platform.transport import expected_maximum
from gpuyard.predict.prediction import Step
from gpuyard.predict.table import Floats, Table


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

    def at(self, row: int) -> Step:
        return Step(
            float(self.compute_seconds[row]),
            float(self.exposed_communication_seconds[row]),
            float(self.input_seconds[row]),
            float(self.straggler_seconds[row]),
        )


def step_parts(table: Table) -> StepParts:
    """The model of DESIGN's "A step", vectorised over the table."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    total, ideal = traffic.strategy.exchange_seconds(table, compute)
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
    input_exposed = np.maximum(0.0, _input_seconds(table) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def samples_per_second(table: Table) -> Floats:
    """The throughput of every row."""
    return table.gpus * table.batch_per_gpu / step_parts(table).step_seconds


def _input_seconds(table: Table) -> Floats:
    """Storage (shared by all), what CPUs do to samples and the copy to each GPU, beside each other;
    the slowest counts."""
    traffic = table.traffic
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
