"""What the model says that each collective takes, by the algorithm that the backend uses. Pure.

gloo's algorithms were read off the bytes that every node of a lab sent and received: a ring for
all-reduce at every size, the same for reduce-scatter (which it makes from an all-reduce), a binomial tree
that sends to all children at once for broadcast, a ring and a gather for reduce.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.measure.collectives.records import Backend, Operation
from gpuyard.predict import collectives as model

# the largest TCP payload of a frame of 1,500 bytes, over what a lab's token bucket counts of the frame
LAB_PAYLOAD = 1448 / 1514


@dataclass(frozen=True)
class RingLinks:
    """What the bytes cross: the slowest link of the ring, and one hop."""

    bytes_per_second: float
    latency_seconds: float


_Formula = Callable[[int, float, RingLinks], tuple[float, float]]
"""Ranks, bytes, links → seconds of hops, seconds of bytes."""


def bus_factor(operation: Operation, ranks: int) -> float:
    """From algorithm bandwidth to bus bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    match operation:
        case "all_reduce":
            return 2 * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter":
            return (ranks - 1) / ranks
        case "broadcast" | "reduce":
            return 1.0


def algorithm(operation: Operation, backend: Backend) -> str:
    return _TABLE[backend][operation][0]


def expected_seconds(
    operation: Operation, backend: Backend, ranks: int, size_bytes: float, links: RingLinks
) -> tuple[float, float]:
    """The hops' part and the bytes' part; they add up."""
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


_RINGS: dict[Operation, tuple[str, _Formula]] = {
    "all_reduce": ("ring", _ring_all_reduce),
    "broadcast": ("pipelined ring", _pipelined),
    "reduce": ("pipelined ring", _pipelined),
    "all_gather": ("ring", _ring_half),
    "reduce_scatter": ("ring", _ring_half),
}
_TABLE: dict[Backend, dict[Operation, tuple[str, _Formula]]] = {
    "nccl": _RINGS,
    "gloo": {
        "all_reduce": ("ring", _ring_all_reduce),
        "broadcast": ("binomial tree", _binomial),
        "reduce": ("ring, then gather", _ring_then_gather),
        "all_gather": ("ring", _ring_half),
        "reduce_scatter": ("ring all-reduce", _ring_all_reduce),
    },
    # an MPI chooses by size; these are what the large ones come to in MPICH and Open MPI
    "mpi": {
        "all_reduce": ("reduce-scatter, then all-gather", _ring_all_reduce),
        "broadcast": ("scatter, then all-gather", _ring_all_reduce),
        "reduce": ("reduce-scatter, then gather", _ring_then_gather),
        "all_gather": ("ring", _ring_half),
        "reduce_scatter": ("ring", _ring_half),
    },
}
