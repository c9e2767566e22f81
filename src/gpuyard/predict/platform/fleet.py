"""Many kinds of machines on many networks at once, for predictions by the hundred thousand."""

from dataclasses import dataclass

import numpy as np

from gpuyard.predict.constants import Constant
from gpuyard.predict.platform.fabric import Networks
from gpuyard.predict.table import Floats, Integers, Links, Rows
from gpuyard.predict.tuning import Tuning
from gpuyard.specs import Dataset


@dataclass(frozen=True)
class Fleet:
    """One entry a number of machines of one kind on one network, all GPUs of them used. It has neither
    storage nor cores that could be short, and nothing was measured on it."""

    nodes: Floats
    gpus_per_node: Floats
    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats
    between_latency_seconds: Floats
    host_to_gpu_bytes_per_second: Floats
    gpu_memory_bytes_per_second: Floats | None = None

    @classmethod
    def of(
        cls,
        nodes: Floats,
        gpus_per_node: Floats,
        networks: Networks,
        tuning: Tuning,
        *,
        inside_bytes_per_second: Floats,
        inside_latency_seconds: Floats,
        host_to_gpu_bytes_per_second: Floats | None = None,
        gpu_memory_bytes_per_second: Floats | None = None,
    ) -> "Fleet":
        """All columns are as long as `nodes`; without a rate to the GPUs they need not be fed."""
        rate, hop = networks.between(nodes, tuning)
        fed = host_to_gpu_bytes_per_second
        return cls(
            nodes,
            gpus_per_node,
            inside_bytes_per_second,
            inside_latency_seconds,
            rate,
            hop,
            np.full(len(nodes), np.inf) if fed is None else fed,
            gpu_memory_bytes_per_second,
        )

    def rows(self, entry: Integers, batch_per_gpu: Floats) -> Rows:
        return Rows(self.nodes[entry], self.gpus_per_node[entry], batch_per_gpu, entry=entry)

    def constant(self, default: Constant) -> Constant:
        return default

    def links(self, rows: Rows, dataset: Dataset | None) -> Links:  # noqa: ARG002
        """What each row gets."""
        if rows.entry is None:
            raise ValueError("rows of a fleet say which of its entries they are about")
        entry, memory = rows.entry, self.gpu_memory_bytes_per_second
        endless = np.full((), np.inf)
        return Links(
            inside_bytes_per_second=self.inside_bytes_per_second[entry],
            inside_latency_seconds=self.inside_latency_seconds[entry],
            between_bytes_per_second=self.between_bytes_per_second[entry],
            between_latency_seconds=self.between_latency_seconds[entry],
            host_to_gpu_bytes_per_second=self.host_to_gpu_bytes_per_second[entry],
            storage_bytes_per_second=endless,
            input_workers=endless,
            gpu_memory_bytes_per_second=None if memory is None else memory[entry],
        )
