"""Calculates the expected time of each collective, by the algorithm that the backend uses.

gloo's algorithms were inferred from the bytes that each node of a lab sent and received: a ring for all-reduce at
every size, the same for reduce-scatter (which gloo implements as an all-reduce), a binomial tree that sends to all
children at once for broadcast, and a ring and a gather for reduce.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.choices import Backend, Collective
from gpuyard.predictor import collectives as model

# the largest TCP payload of a 1,500-byte frame, over the bytes that a lab's token bucket counts for it
LAB_PAYLOAD = 1448 / 1514


@dataclass(frozen=True)
class RingLinks:
    """The rate of the ring's slowest link, and the latency of one hop."""

    bytes_per_second: float
    latency_seconds: float


_Formula = Callable[[int, float, RingLinks], tuple[float, float]]
"""From ranks, bytes, and links to the latency part and the bandwidth part of the time, in seconds."""


def bus_factor(operation: Collective, ranks: int) -> float:
    """Return the ratio of bus bandwidth to algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    match operation:
        case "all_reduce":
            return 2 * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter":
            return (ranks - 1) / ranks
        case "broadcast" | "reduce":
            return 1.0


def name_algorithm(operation: Collective, backend: Backend) -> str:
    return _TABLE[backend][operation][0]


def expected_seconds(
    operation: Collective, backend: Backend, ranks: int, size_bytes: float, links: RingLinks
) -> tuple[float, float]:
    """Return the latency part and the bandwidth part of the time; their sum is the total."""
    return _TABLE[backend][operation][1](ranks, size_bytes, links)


def _ring_all_reduce(ranks: int, size: float, links: RingLinks) -> tuple[float, float]:
    hops = 2 * (ranks - 1) * links.latency_seconds
    return hops, float(model.ring_all_reduce_seconds(ranks, size, links.bytes_per_second))


def _ring_half(ranks: int, size: float, links: RingLinks) -> tuple[float, float]:
    hops = (ranks - 1) * links.latency_seconds
    return hops, float(model.ring_half_seconds(ranks, size, links.bytes_per_second))


def _ring_then_gather(ranks: int, size: float, links: RingLinks) -> tuple[float, float]:
    hops = ranks * links.latency_seconds
    return hops, 2 * float(model.ring_half_seconds(ranks, size, links.bytes_per_second))


def _binomial(ranks: int, size: float, links: RingLinks) -> tuple[float, float]:
    hops = model.binomial_depth(ranks) * links.latency_seconds
    return hops, model.binomial_broadcast_seconds(ranks, size, links.bytes_per_second)


def _pipelined(ranks: int, size: float, links: RingLinks) -> tuple[float, float]:
    return (ranks - 1) * links.latency_seconds, size / links.bytes_per_second


_RINGS: dict[Collective, tuple[str, _Formula]] = {
    "all_reduce": ("ring", _ring_all_reduce),
    "broadcast": ("pipelined ring", _pipelined),
    "reduce": ("pipelined ring", _pipelined),
    "all_gather": ("ring", _ring_half),
    "reduce_scatter": ("ring", _ring_half),
}
_TABLE: dict[Backend, dict[Collective, tuple[str, _Formula]]] = {
    "nccl": _RINGS,
    "gloo": {
        "all_reduce": ("ring", _ring_all_reduce),
        "broadcast": ("binomial tree", _binomial),
        "reduce": ("ring, then gather", _ring_then_gather),
        "all_gather": ("ring", _ring_half),
        "reduce_scatter": ("ring all-reduce", _ring_all_reduce),
    },
    # MPI implementations choose by size; these are the algorithms of MPICH and Open MPI for large messages
    "mpi": {
        "all_reduce": ("reduce-scatter, then all-gather", _ring_all_reduce),
        "broadcast": ("scatter, then all-gather", _ring_all_reduce),
        "reduce": ("reduce-scatter, then gather", _ring_then_gather),
        "all_gather": ("ring", _ring_half),
        "reduce_scatter": ("ring", _ring_half),
    },
}
