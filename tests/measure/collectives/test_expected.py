"""Check the expected time of collectives, and nccl-tests' factors, against numbers calculated by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.choices import Backend, Collective
from gpuyard.measure.collectives.expected import RingLinks, bus_factor, expected_seconds
from gpuyard.measure.collectives.plan import BACKENDS, OPERATIONS

LINKS = RingLinks(bytes_per_second=1e9, latency_seconds=10e-6)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_bus_bandwidth_of_four_ranks(operation: Collective, factor: float) -> None:
    assert bus_factor(operation, 4) == factor


@pytest.mark.parametrize(
    ("backend", "operation", "hops", "moved"),
    [
        # 4 ranks, 100 MB, 1 GB/s, 10 µs a hop
        ("gloo", "all_reduce", 6, 0.150),
        ("gloo", "reduce_scatter", 6, 0.150),  # it is made from an all-reduce
        ("gloo", "all_gather", 3, 0.075),
        ("gloo", "reduce", 4, 0.150),  # a reduce-scatter, then everything to one
        ("gloo", "broadcast", 2, 0.300),  # two copies at once, then one
        ("nccl", "reduce_scatter", 3, 0.075),
        ("nccl", "broadcast", 3, 0.100),
    ],
)
def test_by_hand(backend: Backend, operation: Collective, hops: int, moved: float) -> None:
    assert expected_seconds(operation, backend, 4, 100e6, LINKS) == pytest.approx(
        (hops * 10e-6, moved)
    )


@given(
    backend=st.sampled_from(BACKENDS),
    operation=st.sampled_from(OPERATIONS),
    ranks=st.integers(2, 64),
    size=st.floats(1e3, 1e9),
)
def test_more_bytes_take_longer_and_a_faster_link_less(
    backend: Backend, operation: Collective, ranks: int, size: float
) -> None:
    here = sum(expected_seconds(operation, backend, ranks, size, LINKS))
    assert here < sum(expected_seconds(operation, backend, ranks, 2 * size, LINKS))
    faster = RingLinks(bytes_per_second=2e9, latency_seconds=10e-6)
    assert here > sum(expected_seconds(operation, backend, ranks, size, faster))
