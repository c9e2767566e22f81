"""From what a link could carry to what an exchange gets of it; numbers or NumPy arrays."""

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gpuyard.predict.table import Floats, Truths
from gpuyard.predict.tuning import Tuning

# NCCL plans with 2.7 µs a hop of its LL protocol over a network (NVIDIA/nccl src/graph/tuning.cc)
RDMA_HOP_SECONDS = 2.7e-6
# Ethernet frames of 1,500 bytes with TCP/IP headers carry 1,448 of 1,538 bytes
TCP_PAYLOAD = 0.94
_TABULATED_WORKERS = 8192


def inside_rate(
    link_bytes_per_second: Floats, staged: Truths, across_sockets: Truths, tuning: Tuning
) -> Floats:
    """A ring inside a machine of what its wires let it run at; one that goes through host memory is held back
    by its copies besides."""
    share = np.where(across_sockets, tuning.staged_socket_share, 1.0)
    copies = tuning.staged_bytes_per_second * share
    return np.where(staged, np.minimum(link_bytes_per_second, copies), link_bytes_per_second)


def between_rate(
    wire_bytes_per_second: Floats,
    tcp: Truths,
    flow_bytes_per_second: Floats,
    nodes: Floats,
    tuning: Tuning,
) -> Floats:
    """What a machine sends in a ring over n machines; infinite where there is only one.

    A cap on one flow counts once between two machines and twice from three on, where a machine has
    two neighbours. Where flows are capped the network is shared with strangers: flows differ, and the
    slowest of n sets the pace.
    """
    peers = np.clip(nodes - 1, 1, 2)
    carried = np.minimum(wire_bytes_per_second, flow_bytes_per_second * peers)
    shared = np.isfinite(flow_bytes_per_second)
    slowest = 1 + shared * tuning.tcp_variation * expected_maximum(nodes)
    copied = TCP_PAYLOAD / (1 / carried + 1 / tuning.tcp_host_bytes_per_second)
    rate = np.where(tcp, copied / slowest, tuning.rdma_share * wire_bytes_per_second)
    return np.where(nodes > 1, rate, np.inf)


def between_hop(tcp: Truths, nodes: Floats, tuning: Tuning) -> Floats:
    hop = np.where(tcp, tuning.tcp_hop_seconds, RDMA_HOP_SECONDS * tuning.hop_factor)
    return np.where(nodes > 1, hop, 0.0)


@lru_cache(maxsize=1)
def _above() -> Floats:
    normal = NormalDist()
    found = [normal.inv_cdf((k - 0.375) / (k + 0.25)) for k in range(2, _TABULATED_WORKERS + 1)]
    return np.array([0.0, 0.0, *found])


def expected_maximum(workers: Floats) -> Floats:
    """How many σ the slowest of k normal workers lies above the mean (Blom's approximation, 1958)."""
    counts = np.rint(workers).astype(np.int64)
    if counts.size and counts.max() > _TABULATED_WORKERS:
        normal = NormalDist()
        return np.array(
            [normal.inv_cdf((k - 0.375) / (k + 0.25)) if k > 1 else 0.0 for k in counts]
        )
    return _above()[counts]
