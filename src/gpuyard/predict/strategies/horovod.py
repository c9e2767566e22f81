"""Horovod, whose background thread waits for the next cycle, and until all ranks agree on what is ready."""

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies.ddp import Ring
from gpuyard.predict.table import Floats, Paths, StepTable

FUSION = Constant(
    "horovod_fusion_buffer",
    64 * 1024 * 1024,
    "bytes",
    "published",
    "Horovod: fusion threshold 64 MiB",
)
CYCLE = Constant(
    "horovod_cycle", 1e-3, "seconds", "published", "Horovod: 1 ms since 0.21, 5 ms before"
)


class Horovod(Ring):
    """Gradients are fused into a buffer of one size."""

    name = "horovod"
    constants = (FUSION, CYCLE, c.LAUNCH, c.BACKWARD_SHARE)
    bucket_option = "HOROVOD_FUSION_THRESHOLD"
    hierarchical_caveat = (
        "HOROVOD_HIERARCHICAL_ALLREDUCE=1; between machines it goes through host memory"
    )

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        return (cap_bytes or FUSION.value,)

    def overlap_between(self, tuning: Tuning) -> Constant:
        """Its thread runs beside backward: more of an exchange hides than of DDP's, in the tables of both."""
        return c.overlap_between(tuning.overlap_between_horovod)

    def exchange_seconds(self, table: StepTable, compute_seconds: Floats) -> tuple[Floats, Floats]:
        total, sticks_out = super().exchange_seconds(table, compute_seconds)
        if not len(table.traffic.buckets.size_bytes):
            return total, sticks_out
        return total, sticks_out + wait_seconds(table)


def wait_seconds(paths: Paths) -> Floats:
    """Half a cycle, and what agreeing takes: every rank tells rank 0, and rank 0 tells them to start, a
    gather and a broadcast over all ranks, which tree by tree double."""
    negotiation = 2 * np.ceil(np.log2(paths.gpus)) * paths.hop_seconds
    return np.where(paths.gpus > 1, CYCLE.value / 2 + negotiation, 0.0)
