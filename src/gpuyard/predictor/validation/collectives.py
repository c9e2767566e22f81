"""Validation of the all-reduce formula of a step's buckets against timed all-reduces."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from gpuyard.catalog import gpus
from gpuyard.catalog.published import all_reduce_rows
from gpuyard.catalog.published_rows import AllReduceRow
from gpuyard.hardware import estimate_all_reduce, get_preset
from gpuyard.predictor.constants import Tuning, load_tuning
from gpuyard.predictor.strategies.ddp import all_reduce as all_reduce_by_size
from gpuyard.predictor.table import Floats, Paths
from gpuyard.predictor.transport import between_hop, between_rate
from gpuyard.predictor.validation.score import Score, score_errors
from gpuyard.specs import Topology

_MIN_BYTES = 2**20
_TOPOLOGY: dict[str, Topology] = {"v100-sxm2-16gb": "nvlink-hybrid-cube-mesh"}
# 8 ports of 400 Gbit/s per machine; its source names InfiniBand and EFA of that rate
_B200_WIRE = 8 * 400e9 / 8


def _reason_to_skip(row: AllReduceRow) -> str | None:
    if row.gpu is None:
        return "CPU ranks over MPI: neither the network nor the MPI of the cluster is stated"
    if row.size_bytes < _MIN_BYTES:
        return "below 1 MiB: no bucket of gradients is that small"
    return None


def timed_all_reduces() -> tuple[AllReduceRow, ...]:
    """Return the rows with known hardware and sizes that gradients have."""
    return tuple(row for row in all_reduce_rows() if _reason_to_skip(row) is None)


def skipped_all_reduces() -> tuple[tuple[str, int], ...]:
    reasons = Counter(filter(None, map(_reason_to_skip, all_reduce_rows())))
    return tuple(reasons.most_common())


def predicted_seconds(rows: Sequence[AllReduceRow], tuning: Tuning) -> Floats:
    nodes = np.array([row.nodes for row in rows], dtype=float)
    per_node = np.array([row.gpus / row.nodes for row in rows])
    rings = [_ring(row.gpu or "", row.gpus // row.nodes) for row in rows]
    rdma = np.zeros(len(rows), dtype=bool)
    wire = np.full(len(rows), _B200_WIRE)
    paths = Paths(
        nodes=nodes,
        gpus_per_node=per_node,
        inside_bytes_per_second=np.array([rate for rate, _ in rings]),
        inside_latency_seconds=np.array([hop for _, hop in rings]) * tuning.hop_factor,
        between_bytes_per_second=between_rate(wire, rdma, wire, nodes, tuning),
        between_latency_seconds=between_hop(rdma, nodes, tuning),
    )
    sizes = np.array([row.size_bytes for row in rows])
    return all_reduce_by_size(paths, tuning.launch_seconds)(sizes)


def score_all_reduces() -> dict[str, Score]:
    """Score the bandwidth of each series with constants fitted without this table."""
    rows = timed_all_reduces()
    predicted = predicted_seconds(rows, load_tuning("allreduce"))
    errors = np.array([row.seconds for row in rows]) / predicted - 1
    series = list(dict.fromkeys(row.series for row in rows))
    return {name: score_errors(errors[[row.series == name for row in rows]]) for name in series}


def _ring(gpu: str, count: int) -> tuple[float, float]:
    graph = get_preset(_TOPOLOGY.get(gpu, "nvswitch"), gpus().get(gpu), max(count, 8))
    ring = estimate_all_reduce(graph, [f"GPU{i}" for i in range(count)])
    return ring.bytes_per_second, ring.latency_seconds
