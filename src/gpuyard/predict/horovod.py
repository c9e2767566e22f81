"""What Horovod's background thread waits for before an exchange: the next cycle, and until all ranks
agree on what is ready: every rank tells rank 0, and rank 0 tells them to start."""

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.exchange import Floats, Paths


def wait_seconds(paths: Paths) -> Floats:
    """Half a cycle, and a gather and a broadcast over all ranks, which tree by tree double."""
    hop = np.where(paths.nodes > 1, paths.between_latency_seconds, paths.inside_latency_seconds)
    negotiation = 2 * np.ceil(np.log2(paths.gpus)) * hop
    return np.where(paths.gpus > 1, c.HOROVOD_CYCLE.value / 2 + negotiation, 0.0)
