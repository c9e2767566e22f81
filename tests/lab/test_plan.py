"""Test the plan of a lab: addresses, rates, racks, and cores, and the errors for impossible labs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.lab import overload, plan_from_text, plan_lab
from gpuyard.lab.plan import shape_of


def test_links_differ_by_node() -> None:
    plan = plan_lab(4, "1Gbit", link_of={3: "100 Mbit/s"})
    assert [node.rate_bytes_per_second for node in plan.nodes] == [125e6, 125e6, 125e6, 12.5e6]
    assert [node.address for node in plan.nodes][:2] == ["10.77.0.1", "10.77.0.2"]


def test_racks_are_filled_one_after_the_other() -> None:
    plan = plan_lab(5, "1Gbit", racks=2, uplink="2Gbit")
    assert [node.rack for node in plan.nodes] == [0, 0, 0, 1, 1]
    assert plan.uplink_bytes_per_second == 250e6


def test_a_dilated_link_is_shaped_slower() -> None:
    plan = plan_lab(2, "10Gbit", dilation=10)
    assert plan.nodes[0].rate_bytes_per_second == 1.25e9
    assert plan.shape(1.25e9).rate_bytes_per_second == 125e6
    assert plan.describe()["nodes"][0]["shaped_bytes_per_second"] == 125e6


@given(nodes=st.integers(1, 250), racks=st.integers(1, 250))
def test_every_node_has_cores_a_rack_and_an_address_of_its_own(nodes: int, racks: int) -> None:
    plan = plan_lab(nodes, "1Gbit", racks=min(racks, nodes))
    assert len({node.address for node in plan.nodes}) == nodes
    assert {node.rack for node in plan.nodes} == set(range(min(racks, nodes)))
    assert all(node.cores and set(node.cores) <= set(usable_cores()) for node in plan.nodes)
    sharing = [sum(core in node.cores for node in plan.nodes) for core in usable_cores()]
    assert max(sharing) - min(sharing) <= 1


@given(rate=st.floats(1.6e4, 1e10))
def test_a_bucket_takes_the_largest_packet_and_a_queue_takes_several(rate: float) -> None:
    shape = shape_of(rate)
    assert shape.burst_bytes >= 65536
    assert shape.limit_bytes >= 4 * shape.burst_bytes


def test_a_lab_in_one_word() -> None:
    plan = plan_from_text("8x10Gbit,dilation=10")
    assert plan == plan_lab(8, "10Gbit", dilation=10)
    assert plan_from_text("4x1Gbit,racks=2,uplink=500Mbit") == plan_lab(
        4, "1Gbit", racks=2, uplink="500Mbit"
    )
    assert plan_from_text("rack-12") is None


def test_an_overloaded_lab_gets_a_warning() -> None:
    cores = len(usable_cores())
    assert overload(plan_lab(2, "1Gbit")) is None
    too_much = plan_lab(2, f"{35 * cores}Gbit")  # 70 Gbit/s per core; each carries 3.5
    assert "Use --dilation 20" in str(overload(too_much))
    assert overload(plan_lab(2, f"{35 * cores}Gbit", dilation=20)) is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"nodes": 0, "link": "1Gbit"}, "1 to 250 nodes"),
        ({"nodes": 2, "link": "1Gbt"}, "did you mean"),
        ({"nodes": 2, "link": "1kbit"}, "too slow"),
        ({"nodes": 2, "link": "1Gbit", "name": "A b"}, "'A b'.*a-z"),
        ({"nodes": 2, "link": "1Gbit", "link_of": {2: "1Gbit"}}, "node 2.*0 to 1"),
        ({"nodes": 2, "link": "1Gbit", "racks": 3}, "1 to 2 racks.*3"),
        ({"nodes": 2, "link": "1Gbit", "uplink": "1Gbit"}, "--racks"),
        ({"nodes": 2, "link": "1Gbit", "dilation": 0.5}, "1 to 10,000"),
    ],
)
def test_impossible_settings_name_the_limit(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(UserMistake, match=named):
        plan_lab(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["8x1Gbit,delation=10", "8x1Gbit,dilation=ten"])
def test_a_mistake_in_one_word_names_it(text: str) -> None:
    with pytest.raises(UserMistake, match="dilation"):
        plan_from_text(text)


@pytest.mark.parametrize("racks", ["nan", "inf", "2.5", "two"])
def test_racks_are_counted(racks: str) -> None:
    with pytest.raises(UserMistake, match="racks"):
        plan_from_text(f"8x1Gbit,racks={racks}")
