"""Sizes as people write them, and what can't be measured."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import UserMistake
from gpuyard.lab import plan_lab
from gpuyard.measure.collectives.plan import parse_sizes, plan_collectives
from gpuyard.run.places import LabNodes, LocalMachine
from tests.conftest import Cli


def test_ranges_and_lists() -> None:
    assert parse_sizes("1KB..100KB") == [1000, 4000, 16000, 64000, 100_000]
    assert parse_sizes("1MB..8MB", factor=2) == [1_000_000, 2_000_000, 4_000_000, 8_000_000]
    assert parse_sizes("64 kB, 1 MB") == [64_000, 1_000_000]
    assert parse_sizes("1MB..1MB") == [1_000_000]


@pytest.mark.parametrize("text", ["1MB..1KB", "1MB..", "0..1MB", "big", "1B..1PB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UserMistake):
        parse_sizes(text, factor=2 if "PB" not in text else 1)


@given(workers=st.integers(2, 9), size=st.integers(1, 10_000))
def test_every_rank_has_the_same_share(workers: int, size: int) -> None:
    plan = plan_collectives(LocalMachine(), workers, ["all_reduce"], [size])
    assert plan.sizes[0] % (4 * workers) == 0
    assert plan.sizes[0] <= max(size, 4 * workers)


def test_the_slowest_link_of_a_lab_sets_the_pace() -> None:
    lab = plan_lab(4, "1Gbit", link_of={3: "100Mbit"})
    slow = plan_collectives(LabNodes(lab), 4, ["all_reduce"], [1000])
    assert slow.link_bytes_per_second == 12.5e6
    assert plan_collectives(LabNodes(lab), 3, ["all_reduce"], [1000]).link_bytes_per_second == 125e6
    racks = plan_lab(4, "1Gbit", racks=2, uplink="500Mbit")
    across = plan_collectives(LabNodes(racks), 4, ["all_reduce"], [1000])
    assert across.link_bytes_per_second == 62.5e6
    inside = plan_collectives(LabNodes(racks), 2, ["all_reduce"], [1000])
    assert inside.link_bytes_per_second == 125e6


def test_the_key_changes_with_what_is_measured() -> None:
    def key(rate: str, size: int) -> str:
        return plan_collectives(LabNodes(plan_lab(2, rate)), 2, ["all_reduce"], [size]).key

    assert key("1Gbit", 1000) == key("1 Gbit/s", 1000)
    assert len({key("1Gbit", 1000), key("2Gbit", 1000), key("1Gbit", 2000)}) == 3


@pytest.mark.parametrize(
    ("workers", "operations", "sizes", "sentence"),
    [
        (1, ["all_reduce"], [1000], "2 workers or more"),
        (2, ["allreduce"], [1000], "did you mean 'all_reduce'"),
        (2, ["all_reduce"], [10**15], "memory"),
    ],
)
def test_impossible_plans_are_rejected(
    workers: int, operations: list[str], sizes: list[int], sentence: str
) -> None:
    with pytest.raises(UserMistake, match=sentence):
        plan_collectives(LocalMachine(), workers, operations, sizes)


def test_an_unknown_backend() -> None:
    with pytest.raises(UserMistake, match="did you mean 'gloo'"):
        plan_collectives(LocalMachine(), 2, ["all_reduce"], [1000], backend="glo")


def test_the_requested_number_of_ranks_is_used(cli: Cli) -> None:
    arguments = ("bench", "collectives", "--lab", "4x1Gbit", "--dry-run", "--json")
    assert json.loads(cli(*arguments).stdout)["workers"] == 4
    assert json.loads(cli(*arguments, "--workers", "3").stdout)["workers"] == 3
    assert "2 workers or more" in cli(*arguments, "--workers", "0", status=2).stderr
