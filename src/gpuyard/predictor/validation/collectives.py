"""Validation of the all-reduce formula: timed all-reduces by size, and bus bandwidths of public threads.

A thread is one author's machines. No constant is fitted to threads, and the interval of a thread is sized without its
own rows. Threads that gave the catalog a rate of a link are listed but don't count.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuyard.catalog import gpus
from gpuyard.catalog.published import all_reduce_rows, collective_rows
from gpuyard.catalog.published_rows import AllReduceRow, CollectiveRow
from gpuyard.hardware import AllReduce, build_preset, estimate_all_reduce, get_preset
from gpuyard.predictor.constants import LinkClass, Tuning, link_log_width, load_tuning
from gpuyard.predictor.strategies.ddp import all_reduce as all_reduce_by_size
from gpuyard.predictor.table import Booleans, Floats, Paths
from gpuyard.predictor.transport import (
    MachineLinks,
    Networks,
    between_hop,
    between_rate,
    bound_share,
    create_fabric,
    inside_rate,
    uses_trees,
)
from gpuyard.predictor.validation.score import Score, score_errors
from gpuyard.specs import Topology

_MIN_BYTES = 2**20
_TOPOLOGY: dict[str, Topology] = {"v100-sxm2-16gb": "nvlink-hybrid-cube-mesh"}
# 8 ports of 400 Gbit/s per machine; its source names InfiniBand and EFA of that rate
_B200_WIRE = 8 * 400e9 / 8
# threads that rates of the catalog's links come from
FACT_THREADS = frozenset({"stas00/ml-engineering", "dstackai/dstack"})
_TAIL_FREEDOM = 3
_SCALE_ITERATIONS = 50
# 95% quantiles of Student's t by degrees of freedom
STUDENT_95 = {3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812}
LINK_CLASSES: tuple[LinkClass, ...] = ("nvlink", "pcie", "staged", "network")


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
        inside_bytes_per_second=np.array([ring.bytes_per_second for ring in rings]),
        inside_latency_seconds=np.array([r.latency_seconds for r in rings]) * tuning.hop_factor,
        between_bytes_per_second=between_rate(wire, rdma, wire, nodes, tuning),
        between_latency_seconds=between_hop(rdma, nodes, tuning),
        switch_gain=np.array([ring.switch_gain for ring in rings]),
        trees=np.array([ring.switch_gain > 1 for ring in rings]),
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


def _ring(gpu: str, count: int) -> AllReduce:
    graph = get_preset(_TOPOLOGY.get(gpu, "nvswitch"), gpus().get(gpu), max(count, 8))
    return estimate_all_reduce(graph, [f"GPU{i}" for i in range(count)])


def classify(row: CollectiveRow) -> LinkClass:
    """Return the links that decide about a row."""
    if row.nodes > 1:
        return "network"
    if not row.peer_to_peer:
        return "staged"
    return "pcie" if row.topology in ("workstation", "dual-socket") else "nvlink"


def predict_bus_bandwidths(rows: Sequence[CollectiveRow], tuning: Tuning) -> Floats:
    """Predict the bus bandwidth of each row.

    An all-gather or a reduce-scatter is half a ring all-reduce of the same size, so its bus bandwidth is the same,
    but no switch adds up numbers for it.
    """
    machines = [_links(row) for row in rows]
    rings = [_find_ring(row) for row in rows]
    reduced = np.array([row.op == "all_reduce" and row.nvls for row in rows])
    gain = np.array([ring.switch_gain for ring in rings])
    wires = np.array([ring.bytes_per_second for ring in rings]) / np.where(reduced, 1.0, gain)
    memory = np.array([ring.memory_bytes_per_second for ring in rings])
    fabrics = [create_fabric(row.network)[0] if row.network else None for row in rows]
    nodes = np.array([row.nodes for row in rows], dtype=float)
    per_node = np.array([row.gpus / row.nodes for row in rows])
    slots = per_node * np.array([machine.slot_bytes_per_second for machine in machines])
    between, hop = Networks.from_fabrics(fabrics).exchange_rates(nodes, tuning)
    paths = Paths(
        nodes=nodes,
        gpus_per_node=per_node,
        inside_bytes_per_second=inside_rate(wires, memory, tuning),
        inside_latency_seconds=np.array([r.latency_seconds for r in rings]) * tuning.hop_factor,
        between_bytes_per_second=np.where(nodes > 1, np.minimum(between, slots), between),
        between_latency_seconds=hop,
        switch_gain=np.where(reduced, gain, 1.0),
        trees=reduced & [uses_trees(f, g) for f, g in zip(fabrics, gain, strict=True)],
    )
    sizes = np.array([row.size_bytes for row in rows])
    ranks = nodes * per_node
    seconds = all_reduce_by_size(paths, tuning.launch_seconds)(sizes)
    return np.asarray(2 * (ranks - 1) / ranks * sizes / seconds)


def _find_ring(row: CollectiveRow) -> AllReduce:
    graph = _links(row).graph
    return estimate_all_reduce(graph, graph.gpus[: -(-row.gpus // row.nodes)])


def _links(row: CollectiveRow) -> MachineLinks:
    return _build_links(row.gpu, row.topology, row.machine_gpus, row.peer_to_peer)


@lru_cache(maxsize=256)
def _build_links(gpu: str, topology: Topology, count: int, peers: bool) -> MachineLinks:
    entry = gpus().get(gpu).model_copy(update={"pcie_peer_to_peer": peers})
    return MachineLinks(build_preset(topology, entry, count))


def log_errors(rows: Sequence[CollectiveRow], tuning: Tuning) -> Floats:
    """Return log(predicted / published)."""
    published = np.array([row.bytes_per_second for row in rows])
    return np.asarray(np.log(predict_bus_bandwidths(rows, tuning) / published))


def are_inside(rows: Sequence[CollectiveRow], errors: Floats, log_width: float) -> Booleans:
    """Return which published bus bandwidths are inside the interval of the predicted ones."""
    published = np.array([row.bytes_per_second for row in rows])
    rate = published * np.exp(errors)
    rings = [_find_ring(row) if row.nodes == 1 else None for row in rows]
    wires = np.array([r.bytes_per_second if r and r.staged else np.inf for r in rings])
    low, high = bound_share(rate, wires, log_width)
    return np.asarray((rate * low <= published) & (published <= rate * high))


def fit_log_width(link: LinkClass, errors_by_thread: Iterable[Floats]) -> float:
    """Return half the 90% interval of the logarithm for a thread never seen.

    Errors of threads have long tails: most agree within percents, and one in ten is off by a factor of two. So their
    root mean squares are fitted by Student's t with three degrees of freedom, whose scale a few outliers hardly change
    (expectation maximization: Lange, Little, and Taylor, 1989). Through host memory, large errors are no exception, and
    few threads are known: there, the interval is that of a normal error whose variance these threads estimate.
    """
    squares = np.array([float(np.mean(errors**2)) for errors in errors_by_thread])
    if link == "staged":
        freedom, scale = len(squares), float(np.mean(squares))
    else:
        freedom, scale = _TAIL_FREEDOM, float(np.median(squares))
        for _ in range(_SCALE_ITERATIONS):
            weights = (freedom + 1) / (freedom + squares / scale)
            scale = float(np.mean(weights * squares))
    return STUDENT_95[freedom] * float(np.sqrt(scale))


@dataclass(frozen=True)
class ThreadScore:
    """The score of one thread on one class of links."""

    thread: str
    link: LinkClass
    score: Score
    log_width: float  # half its interval
    is_fact: bool  # rates of the catalog come from it, so it does not count


@dataclass(frozen=True)
class LinkScore:
    """The scores of all threads on one class of links that count, each with the same weight."""

    link: LinkClass
    threads: int
    rows: int
    median_abs_error: float  # of the threads' medians
    inside_interval: float
    low: float  # ends of the shipped interval as shares of the prediction
    high: float


def score_links(threads: Sequence[ThreadScore]) -> tuple[LinkScore, ...]:
    """Summarize the threads of each class of links."""
    scores = []
    for link in LINK_CLASSES:
        members = [t.score for t in threads if t.link == link and not t.is_fact]
        width = link_log_width(link)
        scores.append(
            LinkScore(
                link,
                len(members),
                sum(score.rows for score in members),
                float(np.median([score.median_abs_error for score in members])),
                float(np.mean([score.inside_interval or 0.0 for score in members])),
                float(np.exp(-width)),
                float(np.exp(width)),
            )
        )
    return tuple(scores)


def score_threads() -> tuple[ThreadScore, ...]:
    """Score every thread on each class of links."""
    rows = collective_rows()
    errors = log_errors(rows, load_tuning())
    scores = []
    for link in LINK_CLASSES:
        threads = dict.fromkeys(row.thread for row in rows if classify(row) == link)
        for thread in threads:
            here = [i for i, r in enumerate(rows) if r.thread == thread and classify(r) == link]
            width = link_log_width(link, thread)
            inside = float(np.mean(are_inside([rows[i] for i in here], errors[here], width)))
            score = score_errors(np.expm1(errors[here]), inside, float(np.sinh(width)))
            scores.append(ThreadScore(thread, link, score, width, thread in FACT_THREADS))
    return tuple(scores)
