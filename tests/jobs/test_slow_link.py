"""The slow link is named from the rates at which ranks send, and from the speeds of their cards."""

from dataclasses import replace

import pytest

from gpuyard.jobs.slow_link import find_slow_link
from gpuyard.jobs.verdict import judge
from gpuyard.reporting.ranks import RankWindow, SentBytes

MBIT = 1e6 / 8


def create_ring(rates: list[float], *, count: int = 4, again: int = 0) -> list[RankWindow]:
    """Return a ring in which each rank sends to the one before it, with these rates in Mbit/s."""
    size = len(rates)
    return [
        RankWindow(
            rank, 1000.0 + i, 5, 0.23, 0.03, 0.0, 0.2, 0.0, f"node{rank}", None,
            links=(
                SentBytes(f"10.0.0.{rank}", f"10.0.0.{(rank - 1) % size}", 10_000_000,
                          10_000_000 / (rate * MBIT), again),
            ),
        )
        for i in range(count)
        for rank, rate in enumerate(rates)
    ]  # fmt: skip


def test_a_machine_with_half_a_link_is_named() -> None:
    # measured in a lab: rank 1 has 100 of 200 Mbit/s, and so has rank 2 on its way to rank 1
    verdict = judge(create_ring([167.0, 90.1, 91.0, 148.2]))
    assert verdict is not None
    assert [cause.name for cause in verdict.causes] == ["slow link"]
    assert verdict.causes[0].hosts == ("node1 (rank 1)",)
    assert "91 Mbit/s" in verdict.sentence


def test_a_slow_pair_is_named() -> None:
    slow = find_slow_link(create_ring([180.0, 180.0, 90.0, 180.0, 180.0]), 8)
    assert slow is not None
    assert slow.hosts == ("node2 (rank 2)", "node1 (rank 1)")
    lossy = find_slow_link(create_ring([180.0, 180.0, 90.0, 180.0, 180.0], again=300), 8)
    assert lossy is not None
    assert "sent again" in lossy.clause


@pytest.mark.parametrize(
    "rates",
    [
        [156.6, 120.3],  # two machines have nothing to compare with
        [168.2, 179.1, 178.9, 147.8],  # measured without a fault, at a load of 4.4 per core
        [177.4, 147.7, 160.0],
    ],
)
def test_links_that_are_alike_are_not_accused(rates: list[float]) -> None:
    assert find_slow_link(create_ring(rates), 8) is None


def test_a_slow_link_that_costs_little_is_not_named() -> None:
    short = [replace(w, exchange_seconds=0.01) for w in create_ring([167.0, 90.1, 91.0, 148.2])]
    verdict = judge(short)
    assert verdict is not None
    assert verdict.normal


def test_traffic_to_machines_without_ranks_is_left_out() -> None:
    storage = SentBytes("10.0.0.1", "10.0.9.9", 50_000_000, 20.0, 0)
    windows = [
        replace(w, links=(*w.links, storage)) if w.rank == 1 else w
        for w in create_ring([167.0, 160.0, 158.0, 165.0])
    ]
    assert find_slow_link(windows, 8) is None


def test_a_card_at_a_lower_speed_is_named() -> None:
    windows = [
        replace(w, links=(), cards={"mlx5_0": 100e9 if w.rank == 2 else 200e9})
        for w in create_ring([1.0] * 4)
    ]
    slow = find_slow_link(windows, 8)
    assert slow is not None
    assert slow.hosts == ("node2",)
    assert "100 Gbit/s" in slow.clause
