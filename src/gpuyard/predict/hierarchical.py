"""An all-reduce in two levels: inside each machine, one ring a rail between the machines, inside again."""

import numpy as np

from gpuyard.predict.collectives import hierarchical_all_reduce_seconds
from gpuyard.predict.exchange import Floats, Paths


def hierarchical_seconds(paths: Paths, size: Floats, launch_seconds: float) -> Floats:
    """Three collectives after each other. Between n machines each port carries 2(n−1)/n of the
    message, where a flat ring over k GPUs puts 2(k−1)/k on it: half as much for two machines of
    many GPUs. Infinite where there are no two levels."""
    seconds = 3 * launch_seconds + hierarchical_all_reduce_seconds(
        paths.gpus_per_node,
        paths.nodes,
        size,
        intra_bytes_per_second=paths.inside_bytes_per_second,
        intra_latency_seconds=paths.inside_latency_seconds,
        inter_bytes_per_second=paths.between_bytes_per_second,
        inter_latency_seconds=paths.between_latency_seconds,
    )
    return np.where((paths.nodes > 1) & (paths.gpus_per_node > 1), seconds, np.inf)
