"""Fabric designs against hand-worked numbers: bandwidth, hops, cables, directors, power, and price."""

import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path

import pytest

from gpuyard.catalog.fabric import cables, switches
from gpuyard.draw.fabric import draw_fabric_svg
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric import (
    FabricRequest,
    HostPorts,
    TypicalFloor,
    design_fabric,
    design_management_network,
    design_storage_network,
    find_cheapest_fabric,
)
from gpuyard.facilities.fabric.cabling import choose_cable
from gpuyard.facilities.fabric.shape import populate_chassis


def test_32_dgx_h100() -> None:
    design = design_fabric(FabricRequest(32, 8, "nvidia-qm9700", rails=8))
    assert design.switches == {"leaf": 8, "spine": 4, "core": 0}
    assert design.cable_counts == {"node_leaf": 256, "leaf_spine": 256, "spine_core": 0}
    assert (design.ports_used, design.ports_total, design.spare_leaf_ports) == (768, 768, 0)
    # 256 ports of 50 GB/s, with half of them on each side
    assert design.bisection_bytes_per_second == 256 * 50e9 / 2
    assert design.hops == 3
    assert design.all_reduce_bytes_per_second == 8 * 50e9
    assert design.network.link == "infiniband-ndr"
    assert (design.network.rails, design.network.oversubscription) == (8, 1)


def test_one_rack_of_40_hdr_ports() -> None:
    design = design_fabric(
        FabricRequest(5, 8, "nvidia-qm8700", floor=TypicalFloor(nodes_per_rack=5))
    )
    assert design.kind == "single-switch"
    assert design.switches == {"leaf": 1, "spine": 0, "core": 0}
    assert (design.ports_spare, design.hops) == (0, 1)
    (run,) = design.cables
    assert (run.kind, run.length_m, run.count) == ("dac", 2, 40)


def test_two_machines_need_cables_but_no_switch() -> None:
    design = design_fabric(FabricRequest(2, 2, "mikrotik-crs309", rails=2, direct=True))
    assert design.kind == "direct"
    assert design.switches == {"leaf": 0, "spine": 0, "core": 0}
    assert design.chassis == {}
    assert design.cable_counts == {
        "node_node": 2, "node_leaf": 0, "leaf_spine": 0, "spine_core": 0
    }  # fmt: skip
    (run,) = design.cables
    assert (run.from_tier, run.to_tier, run.count) == ("node", "node", 2)
    assert (design.ports_used, design.ports_total, design.spare_leaf_ports) == (4, 4, 0)
    assert (design.hops, design.oversubscription) == (0, 1)
    bill = design.bill
    assert (bill.switches_usd, bill.switch_watts, bill.rack_units) == (0, 0, 0)
    assert bill.total_usd == run.total_usd + 4 * switches().get("mikrotik-crs309").card_price_usd
    assert "without a switch" in draw_fabric_svg(design)
    with pytest.raises(UserMistake, match="two machines, not 3"):
        design_fabric(FabricRequest(3, 1, "mikrotik-crs309", direct=True))


def test_a_few_machines_use_a_small_current_switch() -> None:
    two, six, ten = (
        find_cheapest_fabric(HostPorts(10, "ethernet"), hosts, TypicalFloor())
        for hosts in (2, 6, 10)
    )
    assert two.kind == "direct"
    assert (six.switch.id, ten.switch.id) == ("mikrotik-crs309", "mikrotik-crs317")
    for design, usd in ((two, 400), (six, 1500), (ten, 2600)):
        assert not design.switch.discontinued
        assert (design.bill.total_usd or 0) < usd
    assert (
        find_cheapest_fabric(HostPorts(25, "ethernet"), 6, TypicalFloor()).switch.id
        == "mikrotik-crs518"
    )


def test_oversubscription_as_built() -> None:
    # 64 ports at 3:1 are 48 down and 16 up; 96 ports need two leaves, with 16 links each to one spine
    design = design_fabric(FabricRequest(96, 1, "nvidia-qm9700", oversubscription=3))
    assert design.switches == {"leaf": 2, "spine": 1, "core": 0}
    assert design.oversubscription == 3
    assert design.bisection_bytes_per_second == pytest.approx(96 * 50e9 / 2 / 3)
    assert design.all_reduce_bytes_per_second == pytest.approx(50e9 / 3)
    # a ring that goes leaf by leaf leaves each leaf once, over 16 links
    assert design.ordered_all_reduce_bytes_per_second == 50e9


def test_non_blocking_director_needs_all_its_spines() -> None:
    design = design_fabric(FabricRequest(216, 1, "mellanox-cs7520"))
    assert design.kind == "director"
    assert design.switches == {"leaf": 6, "spine": 6, "core": 0}
    assert design.cable_counts == {"node_leaf": 216, "leaf_spine": 0, "spine_core": 0}
    assert design.hops == 3
    # the same fabric of single switches: 12 leaves of 18 ports, 6 spines
    single_switches = design_fabric(FabricRequest(216, 1, "mellanox-sb7800"))
    assert single_switches.switches == {"leaf": 12, "spine": 6, "core": 0}


@pytest.mark.parametrize(
    ("ports", "ratio", "leaf_boards", "spine_boards"),
    [
        (216, 1, 6, 6),
        (216, 2, 6, 3),
        (36, 1, 1, 6),  # both chips of the board are full: 18 ports, 3 links per spine board
        (108, 1, 3, 6),
        (18, 1, 1, 3),  # 9 ports on each chip of the board, 3 links to each spine board
        (6, 1, 1, 1),
        (1, 1, 1, 1),
    ],
)
def test_semi_populated_directors(
    ports: int, ratio: int, leaf_boards: int, spine_boards: int
) -> None:
    boards = populate_chassis(switches().get("mellanox-cs7520"), ports, Fraction(ratio))
    assert (boards.leaf_boards, boards.spine_boards) == (leaf_boards, spine_boards)


def test_director_spine_is_populated_by_its_links() -> None:
    # 500 ports need 28 leaves of 18; each of 3 directors has 6 links to each leaf: 168 ports, 5 leaf boards
    design = design_fabric(FabricRequest(500, 1, "mellanox-sb7800", spine="mellanox-cs7520"))
    assert design.switches == {"leaf": 28, "spine": 3, "core": 0}
    assert design.spine_boards is not None
    assert design.spine_boards.leaf_boards == 5
    assert design.hops == 5
    full = switches().get("mellanox-cs7520").price_usd
    leaf = switches().get("mellanox-sb7800").price_usd
    assert full is not None and leaf is not None
    # with all 6 spine boards, 11 of 12 boards; a quarter of the price is the chassis
    price = 28 * leaf + 3 * full * (0.25 + 0.75 * 11 / 12)
    assert design.bill.switches_usd == pytest.approx(price)


def test_bill_by_hand() -> None:
    design = design_fabric(FabricRequest(4, 2, "nvidia-qm8700"))
    bill = design.bill
    switch, cable = switches().get("nvidia-qm8700"), cables().get("dac-200g")
    assert bill.switches_usd == switch.price_usd
    assert bill.cables_usd == 8 * (cable.price_usd + 2 * cable.price_usd_per_m)
    assert bill.cards_usd == 8 * switch.card_price_usd
    assert bill.usd_per_port == ((bill.switches_usd or 0) + bill.cables_usd) / 8
    assert (bill.rack_units, bill.switch_watts) == (1, switch.max_watts)


def test_cable_lengths_on_the_floor() -> None:
    floor = TypicalFloor(nodes_per_rack=4, racks_per_row=10)
    assert floor.measure_cable_m(3, 3) == 2
    assert floor.measure_cable_m(3, 5) == pytest.approx(3.5 + 2 * 0.6)
    # the second row counts backward: rack 12 is in eighth place, and rack 19 is across from rack 0
    assert floor.measure_cable_m(0, 12) == pytest.approx(3.5 + 7 * 0.6 + 3)
    assert floor.measure_cable_m(0, 19) == pytest.approx(3.5 + 3)
    assert floor.measure_cable_m(9, 10) == pytest.approx(3.5 + 3)


def test_large_floor_has_long_enough_management_cables() -> None:
    floor = TypicalFloor.from_node_count(20_000)
    assert design_management_network(20_000, 1_622, floor).switches["leaf"] > 0


@pytest.mark.parametrize(
    ("gbit", "meters", "kind"),
    [(100, 2, "dac"), (100, 3.0, "dac"), (100, 3.1, "aoc"), (100, 101, "optics"),
     (400, 3, "dac"), (400, 4.1, "acc"), (400, 20, "optics"), (1, 20, "twisted-pair")],
)  # fmt: skip
def test_copper_for_short_and_optical_for_long_cables(
    gbit: float, meters: float, kind: str
) -> None:
    assert choose_cable(gbit, meters).kind == kind


def test_error_for_a_distance_beyond_any_cable() -> None:
    with pytest.raises(UserMistake, match=r"5000 m at 100 Gbit/s.* 2000 m"):
        choose_cable(100, 5000)


@pytest.mark.parametrize(
    ("request_", "facts"),
    [
        (FabricRequest(4, 8, "nvidia-qm970"), "did you mean 'nvidia-qm9700'"),
        (FabricRequest(4, 8, "nvidia-qm9700", rails=3), "--rails may be 1, 2, 4, 8"),
        (FabricRequest(4, 8, "nvidia-qm9700", oversubscription=0.5), "0.5: 1 is non-blocking"),
        (
            FabricRequest(65537, 1, "nvidia-qm9700"),
            "nvidia-qm9700 .*65,537",
        ),
        (FabricRequest(49, 1, "nvidia-sn2201"), "--spine may be mellanox-sn2100"),
        (
            FabricRequest(49, 1, "nvidia-qm8700", spine="nvidia-qm9700"),
            "nvidia-qm8700 .* 200 Gbit/s.*nvidia-qm9700 .*400 Gbit/s",
        ),
        (
            FabricRequest(49, 1, "mellanox-sb7800", spine="mellanox-sn2700"),
            "mellanox-sb7800 is infiniband",
        ),
        (FabricRequest(0, 1, "nvidia-qm8700"), "at least one machine"),
    ],
)
def test_mistakes_name_the_fix(request_: FabricRequest, facts: str) -> None:
    with pytest.raises(UserMistake, match=facts):
        design_fabric(request_)


def test_management_network() -> None:
    # 32 machines with two ports each, and 12 switches: 76 ports need two switches of 48
    management = design_management_network(32, 12, TypicalFloor())
    assert management.request.endpoints == 76
    assert management.switches == {"leaf": 2, "spine": 1, "core": 0}
    assert design_management_network(4, 1, TypicalFloor()).switches == {
        "leaf": 1,
        "spine": 0,
        "core": 0,
    }


def test_small_management_switch_unless_redundant() -> None:
    few, redundant = (
        design_management_network(4, 1, TypicalFloor(), redundant=r) for r in (False, True)
    )
    assert (few.request.switch, redundant.request.switch) == (
        "mikrotik-crs326-24g",
        "nvidia-sn2201",
    )
    assert design_management_network(20, 1, TypicalFloor()).request.switch == "nvidia-sn2201"
    # 32 machines and 4 servers with two ports: 72 ports
    storage = design_storage_network(32, 2, "nvidia-qm9700", TypicalFloor())
    assert storage.request.endpoints == 72


@pytest.mark.parametrize(
    "request_",
    [
        FabricRequest(32, 8, "nvidia-qm9700", rails=8),
        FabricRequest(600, 8, "nvidia-qm9700"),
        FabricRequest(1, 1, "nvidia-qm8700"),
        FabricRequest(216, 1, "mellanox-cs7520"),
    ],
)
def test_drawing_stays_inside_its_frame(request_: FabricRequest) -> None:
    design = design_fabric(request_)
    root = ET.fromstring(draw_fabric_svg(design))  # noqa: S314  our own text
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert x >= 0 and x + float(box.attrib["width"]) <= width
        assert y >= 0 and y + float(box.attrib["height"]) <= height
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(f"{design.request.nodes:,} machine" in text for text in texts)
    assert draw_fabric_svg(design) == draw_fabric_svg(design)


@pytest.mark.parametrize(
    ("picture", "request_"),
    [
        ("fabric-32-dgx-h100", FabricRequest(32, 8, "nvidia-qm9700", rails=8)),
        ("fabric-512-nodes", FabricRequest(512, 8, "nvidia-qm9700", rails=8)),
        ("fabric-oversubscribed", FabricRequest(96, 1, "nvidia-qm9700", oversubscription=3)),
    ],
)
def test_pictures_in_the_docs_are_current(picture: str, request_: FabricRequest) -> None:
    file = Path(__file__).parents[2] / "docs" / "images" / f"{picture}.svg"
    assert file.read_text(encoding="utf-8") == draw_fabric_svg(design_fabric(request_))
