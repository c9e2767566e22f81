"""Whole rooms: the three worked designs, what a site lacks, and limits that no design ever passes."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import known_names, read_site
from gpuyard.errors import GpuyardError
from gpuyard.facility.design import FacilityDesign, design_facility
from gpuyard.facility.power.cord import CONNECTORS, cord_for
from gpuyard.facility.power.cord_list import all_cords, cord_counts
from gpuyard.facility.power.electricity import POWER_FACTOR, line_amps
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.requirements import room_requirements
from gpuyard.facility.site_rules import rules_for
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site

EXAMPLES = Path(__file__).parents[2] / "examples"


def designed(cluster: str, site: str) -> FacilityDesign:
    return design_facility(
        read_cluster(str(EXAMPLES / f"{cluster}.cluster.yaml")),
        read_site(EXAMPLES / f"{site}.site.yaml"),
    )


def site(**changes: Any) -> Site:
    described: dict[str, Any] = {
        "name": "test site",
        "kind": "room",
        "country": "US",
        "feeds": 2,
        "circuits": [
            {"voltage": "208 V", "amps": "60 A", "phases": 3, "receptacle": "iec-60309-60a-3p-e-9h"}
        ],
        "pdu": "apc-ap8966",
        "rack": {"power": "17 kW"},
    }
    return Site.model_validate(described | changes, context=known_names())


def cluster(machine: str = "supermicro-4029gp-trt", nodes: int = 4) -> Cluster:
    network = {"link": "infiniband-hdr"} if nodes > 1 else None
    return Cluster.model_validate(
        {"name": "test", "nodes": nodes, "machine": machine, "network": network}
    )


def check_limits(design: FacilityDesign) -> None:
    """Everything again from the places of the cords, by other code than the design's own."""
    feeds = design.site.feeds
    share = design.rules.continuous_load
    for rack in range(design.room.floor.racks):
        inside = design.room.in_rack(rack)
        units = [u for p in inside for u in range(p.unit, p.unit + p.device.rack_units)]
        assert len(units) == len(set(units)), "two devices in one unit"
        if not design.on_desk:
            assert max(units) <= design.site.rack.units
        assert sum(p.device.weight_kg for p in inside) <= design.site.rack.weight
        assert sum(p.device.peak_watts for p in inside) <= design.rules.rack_watts + 1e-6
    supplies: Counter[tuple[str, int]] = Counter()
    pdus: dict[tuple[int, str, int], list[tuple[int, str, float]]] = {}
    for cord in all_cords(design):
        device = cord.device.device
        supplies[cord.device.label, cord.supply] += 1
        # with one feed gone, this side's supplies carry all that the device takes, if it still runs
        mine = device.cords_on("AB".index(cord.feed), feeds)
        left = mine if feeds == 2 else device.supplies
        running = left >= device.supplies_minimum
        watts = device.peak_watts / (left if running else device.supplies)
        place = (cord.rack, cord.feed, cord.pdu)
        pdus.setdefault(place, []).append((cord.bank, cord.outlet, watts / POWER_FACTOR))
        pdu = design.pdu_choice.pdus["AB".index(cord.feed)]
        amps = watts / POWER_FACTOR / pdu.outlet_volts
        for face in (cord.kind.plug, cord.kind.connector):
            assert amps <= (plugs().get(face).amps(design.rules.region) or 0) * share + 1e-6
        assert cord.kind.connector == CONNECTORS[device.inlet]
    assert all(count == 1 for count in supplies.values()), "a supply with two cords"
    assert len(supplies) == sum(p.device.supplies for p in design.room.placed), "one without"
    for (_, feed, _), plugged in pdus.items():
        check_strip(design, feed, plugged)


def check_strip(design: FacilityDesign, feed: str, plugged: list[tuple[int, str, float]]) -> None:
    pdu = design.pdu_choice.pdus["AB".index(feed)]
    legs = [0.0] * pdu.legs
    banks: Counter[int] = Counter()
    used: Counter[tuple[int, str]] = Counter()
    for bank, outlet, va in plugged:
        legs[pdu.banks[bank - 1].leg] += va
        banks[bank] += round(va * 1000)
        used[bank, outlet] += 1
    for bank, milli_va in banks.items():
        assert milli_va / 1000 / pdu.outlet_volts <= pdu.banks[bank - 1].usable_amps + 1e-3
    for (bank, outlet), count in used.items():
        assert count <= dict(pdu.banks[bank - 1].outlets)[outlet]
    amps = line_amps(tuple(va / pdu.outlet_volts for va in legs), pdu.circuit.voltage)
    assert max(amps) <= pdu.circuit.amps * design.rules.continuous_load + 1e-3
    assert sum(legs) <= pdu.usable_va + 1


def test_a_workstation_on_an_office_circuit() -> None:
    design = designed("workstation", "office")
    check_limits(design)
    assert design.on_desk
    (cord,) = all_cords(design)
    assert (cord.kind.plug, cord.kind.connector) == ("nema-5-20p", "c19")
    # 1456 W / 0.98 / 120 V
    assert cord.amps == pytest.approx(design.peak_watts / 0.98 / 120)
    assert cord.amps < 16


def test_four_servers_on_two_ap8966() -> None:
    design = designed("rack", "machine-room")
    check_limits(design)
    assert design.room.floor.racks == 1
    (a, b) = design.power[0].pdus
    assert (a.feed, b.feed) == ("A", "B")
    assert a.pdu.usable_va == pytest.approx(17_293, abs=1)
    # each side carries all of it
    assert a.va == pytest.approx(design.peak_watts / 0.98, rel=1e-6)
    assert a.normal_va == pytest.approx(a.va / 2, rel=1e-6)
    assert a.balance.proven
    assert [loss.full_speed for loss in feed_losses(design)] == [8, 8]


def test_32_dgx_h100_in_a_colocation() -> None:
    design = designed("dgx-h100", "colocation")
    check_limits(design)
    assert design.network.compute is not None
    assert design.network.compute.switches == {"leaf": 8, "spine": 4, "core": 0}
    assert design.room.floor.racks == 9, "eight of four servers, and one for the switches"
    alone = [
        r for r in range(9) if not any(p.device.kind == "server" for p in design.room.in_rack(r))
    ]
    assert alone == [4], "in the middle, where its cables are shortest"
    needs = room_requirements(design)
    assert max(rack.peak_watts for rack in needs.racks) == 40_800
    assert {n.feed: n.count for n in needs.circuits} == {"A": 18, "B": 18}
    (loss, _) = feed_losses(design)
    assert (loss.slower, loss.off) == (32, 0), "three of six supplies are left, four are needed"
    assert sum(c.count for c in design.cables if c.use == "machine to leaf") == 256


@pytest.mark.parametrize(
    ("machine", "nodes", "where", "sentence"),
    [
        ("dgx-h100", 1, site(), "draws 16.7 A after a feed has failed, and an outlet of APC AP8966 carries 16.0 A continuously: 0.7 A short"),
        ("dgx-a100", 4, site(rack={"power": "17 kW", "count": 1}), "takes 2 racks, and there is room for 1: 1 short"),
        ("dgx-h100", 1, site(rack={"power": "8 kW"}), "draws 10.2 kW, and a rack may draw 8.0 kW: 2.2 kW short"),
        ("dgx-a100", 1, site(rack={"power": "17 kW", "depth": "800 mm"}), "897 mm deep, and a rack takes 800 mm: 97 mm short"),
        ("supermicro-4029gp-trt", 4, site(cooling_power="10 kW"), "cools 10.0 kW: 4.9 kW short"),
        ("dgx-a100", 2, site(floor_load="300 kg/m2"), "and the floor bears 300 kg/m²"),
        ("supermicro-4029gp-trt", 4, site(cable_limit="1 m"), "and the limit is 1.0 m"),
        (
            "supermicro-4029gp-trt",
            1,
            site(kind="office", feeds=1, pdu=None, circuits=[{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}]),
            "needs 200 V or more",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_by_how_much(machine: str, nodes: int, where: Site, sentence: str) -> None:
    with pytest.raises(GpuyardError) as refused:
        design_facility(cluster(machine, nodes), where)
    assert sentence in str(refused.value)
    assert refused.value.exit_status == 1


def test_too_few_circuits_are_counted() -> None:
    circuits = [
        {"voltage": "208 V", "amps": "60 A", "phases": 3, "receptacle": "iec-60309-60a-3p-e-9h",
         "count": 1, "feed": feed}
        for feed in ("A", "B")
    ]  # fmt: skip
    with pytest.raises(GpuyardError, match=r"needs 3 circuits of 208 V and 60 A.*has 1: 2 short"):
        design_facility(cluster("dgx-a100", 4), site(circuits=circuits))


def test_a_plug_that_does_not_fit() -> None:
    with pytest.raises(GpuyardError, match="does not fit the CEE red 32 A socket"):
        design_facility(
            cluster(),
            site(
                circuits=[
                    {"voltage": "400 V", "amps": "32 A", "phases": 3,
                     "receptacle": "iec-60309-32a-3p-n-e-6h"}
                ]
            ),
        )  # fmt: skip


def test_no_cord_is_shorter_than_its_way() -> None:
    pdu = designed("rack", "machine-room").pdu_choice.pdus[0]
    assert cord_for("c14", "c13", pdu, 1.1).length_m == 1.2
    assert cord_for("c14", "c13", pdu, 4.5).length_m == 4.5
    with pytest.raises(GpuyardError, match=r"5.0 m is needed .* 4.5 m: 0.5 m short"):
        cord_for("c14", "c13", pdu, 5.0)


@pytest.mark.parametrize(
    ("kind", "cooling", "kilowatts"),
    [("office", "air", 5), ("room", "air", 10), ("colocation", "air", 20),
     ("colocation", "rear-door", 45), ("colocation", "liquid", 130)],
)  # fmt: skip
def test_what_a_rack_may_draw_by_site(kind: str, cooling: str, kilowatts: int) -> None:
    usual = rules_for(site(kind=kind, cooling=cooling, rack={}))
    assert usual.rack_watts == kilowatts * 1000
    assert any(f"{kilowatts} kW per rack" in line for line in usual.assumed)


def test_each_rack_says_what_a_lost_feed_does_to_it() -> None:
    design = designed("dgx-h100", "colocation")
    for rack in range(design.room.floor.racks):
        placed = design.room.in_rack(rack)
        machines = sum(p.device.kind == "server" for p in placed)
        for loss in feed_losses(design, rack):
            assert (loss.full_speed, loss.slower, loss.off) == (len(placed) - machines, machines, 0)
            assert {load.feed for load in loss.left} == {"AB"[loss.feed == "A"]}
            # what is left carries all of the rack
            watts = sum(p.device.peak_watts for p in placed)
            assert sum(load.va for load in loss.left) == pytest.approx(watts / POWER_FACTOR)
            assert 0 < loss.fullest_line <= 1 + 1e-6
            assert 0 < loss.fullest_bank <= 1 + 1e-6


def test_costs_by_hand() -> None:
    design = designed("rack", "machine-room")
    colocation, own = design.housing_costs
    hours = 8766 / 12
    assert own.energy_usd_per_month == pytest.approx(
        design.typical_watts / 1000 * hours * 1.58 * 0.1278
    )
    assert colocation.rent_usd_per_month == pytest.approx(design.peak_watts / 1000 * 184.06)
    assert own.build_usd == pytest.approx(design.peak_watts / 1000 * 11_000)
    assert own.build_usd_per_month == pytest.approx(design.peak_watts / 1000 * 11_000 / 120)


MACHINES = ["supermicro-4029gp-trt", "dgx-a100", "dgx-h100", "dgx-b200", "dell-c4140", "dgx-1-v100"]
CIRCUITS = [
    {"voltage": "208 V", "amps": "60 A", "phases": 3, "receptacle": "iec-60309-60a-3p-e-9h"},
    {"voltage": "208 V", "amps": "30 A", "phases": 3, "receptacle": "nema-l21-30r"},
    {"voltage": "208 V", "amps": "30 A", "receptacle": "nema-l6-30r"},
    {"voltage": "400 V", "amps": "32 A", "phases": 3, "receptacle": "iec-60309-32a-3p-n-e-6h"},
    {"voltage": "230 V", "amps": "32 A", "receptacle": "iec-60309-32a-2p-e-6h"},
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    machine=st.sampled_from(MACHINES),
    nodes=st.integers(1, 24),
    circuit=st.sampled_from(CIRCUITS),
    feeds=st.sampled_from([1, 2]),
    kilowatts=st.integers(5, 60),
    units=st.integers(12, 48),
    country=st.sampled_from(["US", "DE"]),
)
def test_no_design_ever_passes_a_limit(
    machine: str,
    nodes: int,
    circuit: dict[str, Any],
    feeds: int,
    kilowatts: int,
    units: int,
    country: str,
) -> None:
    where = site(
        circuits=[circuit],
        feeds=feeds,
        pdu=None,
        country=country,
        rack={"power": f"{kilowatts} kW", "units": units},
    )
    try:
        design = design_facility(cluster(machine, nodes), where)
    except GpuyardError as refused:
        assert "can't" in str(refused)
        return
    assert len(design.room.of_kind("server")) == nodes
    check_limits(design)
    fabric = design.network.compute
    if fabric is not None:
        assert fabric.ports_used <= fabric.ports_total


def test_rows_left_open_are_as_long_as_a_cable_limit_needs() -> None:
    def longest_m(design: FacilityDesign) -> float:
        return max(cable.length_m for cable in design.cables)

    many, racks = cluster(nodes=40), {"power": "4.5 kW"}
    usual = design_facility(many, site(rack=racks))
    limit = f"{longest_m(usual) - 0.5:.3f} m"
    within = design_facility(many, site(rack=racks, cable_limit=limit))
    by_length = [
        longest_m(design_facility(many, site(rack=racks | {"per_row": length})))
        for length in range(4, usual.room.floor.racks + 1, 2)
    ]
    assert longest_m(within) <= min(by_length) + 0.6  # one rack more or less in a row
    assert any("keep cables short" in words for words in within.assumed)
    check_limits(within)
    with pytest.raises(GpuyardError, match="too long"):
        design_facility(many, site(rack=racks | {"per_row": 12}, cable_limit=limit))


def workstations(count: int, **more: Any) -> Cluster:
    """So many of the example's."""
    network = {"rate": "10 Gbit/s"} if count > 1 else None
    machine = {"gpu": "rtx-2080-ti", "gpus": 4, "topology": "workstation"}
    described = {"name": "test", "nodes": count, "machine": machine, "network": network}
    return Cluster.model_validate(described | more)


def test_a_workstation_is_plugged_into_the_pdu_of_a_rack_beside_it() -> None:
    design = designed("workstation", "machine-room")
    (cord,) = cord_counts(design)
    assert cord.length_m <= 3
    assert design.on_desk


def test_workstations_stand_in_an_office_that_has_a_circuit_for_each() -> None:
    office = read_site(EXAMPLES / "office.site.yaml")
    design = design_facility(workstations(2, management_ports=0), office)
    assert design.on_desk
    assert len(design.power[0].pdus) == 2
    assert design.server.volts_minimum == 100
    with pytest.raises(GpuyardError, match=r"(?s)needs . circuits of 120 V and 20 A.*has 2"):
        design_facility(workstations(4, management_ports=0), office)


def test_workstations_in_a_machine_room_stand_on_shelves_and_keep_their_supplies() -> None:
    design = design_facility(workstations(2), read_site(EXAMPLES / "machine-room.site.yaml"))
    assert not design.on_desk
    assert (design.server.supplies, design.server.volts_minimum) == (1, 100)
    assert design.server.name.startswith("workstation with")
