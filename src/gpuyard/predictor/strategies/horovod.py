"""Horovod: its background thread waits for the next cycle and until all ranks agree on ready gradients."""

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.strategies.ddp import Ring
from gpuyard.predictor.table import Floats, Paths, StepTable

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
    """A ring that fuses gradients into a buffer of fixed size."""

    name = "horovod"
    constants = (FUSION, CYCLE, c.LAUNCH, c.BACKWARD_SHARE)
    bucket_option = "HOROVOD_FUSION_THRESHOLD"
    hierarchical_caveat = (
        "HOROVOD_HIERARCHICAL_ALLREDUCE=1; traffic between machines goes through host memory"
    )

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        return (cap_bytes or FUSION.value,)

    def overlap_between(self, tuning: Tuning) -> Constant:
        """Return Horovod's own overlap: its thread hides more than DDP does, in the tables of both."""
        return c.overlap_between(tuning.overlap_between_horovod)

    def exchange_seconds(self, table: StepTable, compute_seconds: Floats) -> tuple[Floats, Floats]:
        total, exposed = super().exchange_seconds(table, compute_seconds)
        if not len(table.traffic.buckets.size_bytes):
            return total, exposed
        return total, exposed + wait_seconds(table)


def wait_seconds(paths: Paths) -> Floats:
    """Return half a cycle plus the negotiation time.

    Every rank reports to rank 0, and rank 0 starts them: a gather and a broadcast over a binary tree.
    """
    negotiation = 2 * np.ceil(np.log2(paths.gpus)) * paths.hop_seconds
    return np.where(paths.gpus > 1, CYCLE.value / 2 + negotiation, 0.0)
