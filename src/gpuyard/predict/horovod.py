"""Horovod's background thread: once a cycle, what is ready goes together, after all ranks agreed on it.

So a pack does not wait until the fusion buffer is full (horovod docs/tensor-fusion.rst), but for the
next cycle and for the negotiation: every rank tells rank 0 what is ready, and rank 0 tells them to start.
"""

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.exchange import Floats, Paths


def pack_bytes(gradient_bytes: float, threshold_bytes: float | None = None) -> float:
    """What one cycle brings, up to what the fusion buffer holds."""
    most = threshold_bytes or c.HOROVOD_FUSION.value
    return min(most, gradient_bytes / c.HOROVOD_CYCLES.value)


def wait_seconds(paths: Paths) -> Floats:
    """Half a cycle, and a gather and a broadcast over all ranks, which tree by tree double."""
    hop = np.where(paths.nodes > 1, paths.between_latency_seconds, paths.inside_latency_seconds)
    negotiation = 2 * np.ceil(np.log2(paths.gpus)) * hop
    return np.where(paths.gpus > 1, c.HOROVOD_CYCLE.value / 2 + negotiation, 0.0)
