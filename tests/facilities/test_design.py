"""Whole rooms: the three worked examples, the shortfalls of a site, and limits that every design respects."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import known_names, read_site
from gpuyard.errors import GpuyardError
from gpuyard.facilities.design import FacilityDesign, design_facility
from gpuyard.facilities.power.cord import CONNECTORS, choose_cord
from gpuyard.facilities.power.electricity import POWER_FACTOR, line_amps
from gpuyard.facilities.requirements import calculate_requirements, list_feed_losses
from gpuyard.facilities.site_rules import resolve_site_rules
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site

EXAMPLES = Path(__file__).parents[2] / "examples"


def design_example(cluster: str, site: str) -> FacilityDesign:
    return design_facility(
        read_cluster(str(EXAMPLES / f"{cluster}.cluster.yaml")),
        read_site(EXAMPLES / f"{site}.site.yaml"),
    )


def build_site(**changes: Any) -> Site:
    document: dict[str, Any] = {
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
    return Site.model_validate(document | changes, context=known_names())


def build_cluster(machine: str = "supermicro-4029gp-trt", nodes: int = 4) -> Cluster:
    network = {"link": "infiniband-hdr"} if nodes > 1 else None
    return Cluster.model_validate(
        {"name": "test", "nodes": nodes, "machine": machine, "network": network}
    )


def check_limits(design: FacilityDesign) -> None:
    """Check all limits again from the cords, with code that is independent of the design's own."""
    feeds = design.site.feeds
    share = design.rules.continuous_load
    for rack in range(design.room.floor.racks):
        inside = design.room.get_rack(rack)
        units = [u for p in inside for u in range(p.unit, p.unit + p.device.rack_units)]
        assert len(units) == len(set(units)), "two devices in one rack unit"
        if not design.on_desk:
            assert max(units) <= design.site.rack.units
        assert sum(p.device.weight_kg for p in inside) <= design.site.rack.weight
        assert sum(p.device.peak_watts for p in inside) <= design.rules.rack_watts + 1e-6
    supplies: Counter[tuple[str, int]] = Counter()
    pdus: dict[tuple[int, str, int], list[tuple[int, str, float]]] = {}
    for cord in design.cords:
        device = cord.device.device
        supplies[cord.device.label, cord.supply] += 1
        # after one feed has failed, the other side's supplies carry the whole device, if it still runs
        on_feed = device.count_cords("AB".index(cord.feed), feeds)
        remaining = on_feed if feeds == 2 else device.supplies
        running = remaining >= device.supplies_minimum
        watts = device.peak_watts / (remaining if running else device.supplies)
        place = (cord.rack, cord.feed, cord.pdu)
        pdus.setdefault(place, []).append((cord.bank, cord.outlet, watts / POWER_FACTOR))
        pdu = design.pdu_choice.pdus["AB".index(cord.feed)]
        amps = watts / POWER_FACTOR / pdu.outlet_volts
        for face in (cord.kind.plug, cord.kind.connector):
            assert amps <= (plugs().get(face).amps(design.rules.region) or 0) * share + 1e-6
        assert cord.kind.connector == CONNECTORS[device.inlet]
    assert all(count == 1 for count in supplies.values()), "a supply with two cords"
    assert len(supplies) == sum(p.device.supplies for p in design.room.placed), (
        "a supply without a cord"
    )
    for (_, feed, _), plugged in pdus.items():
        check_pdu(design, feed, plugged)


def check_pdu(design: FacilityDesign, feed: str, plugged: list[tuple[int, str, float]]) -> None:
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


def test_workstation_on_office_circuit() -> None:
    design = design_example("workstation", "office")
    check_limits(design)
    assert design.on_desk
    (cord,) = design.cords
    assert (cord.kind.plug, cord.kind.connector) == ("nema-5-20p", "c19")
    # 1456 W / 0.98 / 120 V
    assert cord.amps == pytest.approx(design.peak_watts / 0.98 / 120)
    assert cord.amps < 16


def test_four_servers_on_two_ap8966_pdus() -> None:
    design = design_example("rack", "machine-room")
    check_limits(design)
    assert design.room.floor.racks == 1
    (a, b) = design.power[0].pdus
    assert (a.feed, b.feed) == ("A", "B")
    assert a.pdu.usable_va == pytest.approx(17_293, abs=1)
    # each feed carries the whole load
    assert a.va == pytest.approx(design.peak_watts / 0.98, rel=1e-6)
    assert a.normal_va == pytest.approx(a.va / 2, rel=1e-6)
    assert a.balance.proven
    assert [loss.full_speed for loss in list_feed_losses(design)] == [8, 8]


def test_32_dgx_h100_in_colocation() -> None:
    design = design_example("dgx-h100", "colocation")
    check_limits(design)
    assert design.network.compute is not None
    assert design.network.compute.switches == {"leaf": 8, "spine": 4, "core": 0}
    assert design.room.floor.racks == 9, "eight racks of four servers, and one for the switches"
    without_servers = [
        r for r in range(9) if not any(p.device.kind == "server" for p in design.room.get_rack(r))
    ]
    assert without_servers == [4], "in the middle, where its cables are shortest"
    needs = calculate_requirements(design)
    assert max(rack.peak_watts for rack in needs.racks) == 40_800
    assert {n.feed: n.count for n in needs.circuits} == {"A": 18, "B": 18}
    (loss, _) = list_feed_losses(design)
    assert (loss.slower, loss.off) == (32, 0), "three of six supplies remain, and four are needed"
    assert sum(c.count for c in design.cables if c.use == "machine to leaf") == 256


@pytest.mark.parametrize(
    ("machine", "nodes", "site", "facts"),
    [
        ("dgx-h100", 1, build_site(), r"power supply.*16\.7 A.*APC AP8966.*16\.0 A.*0\.7 A short"),
        ("dgx-a100", 4, build_site(rack={"power": "17 kW", "count": 1}), r"2 racks.*\b1: 1 short"),
        ("dgx-h100", 1, build_site(rack={"power": "8 kW"}), r"DGX H100.*10\.2 kW.*rack.*8\.0 kW: 2\.2 kW short"),
        ("dgx-a100", 1, build_site(rack={"power": "17 kW", "depth": "800 mm"}), r"897 mm deep.*800 mm: 97 mm short"),
        ("supermicro-4029gp-trt", 4, build_site(cooling_power="10 kW"), r"cools 10\.0 kW: 4\.9 kW short"),
        ("dgx-a100", 2, build_site(floor_load="300 kg/m2"), r"floor.* 300 kg/m²: \d+ kg/m² short"),
        ("supermicro-4029gp-trt", 4, build_site(cable_limit="1 m"), r"cable.*limit.* 1\.0 m: .* m too long"),
        (
            "supermicro-4029gp-trt",
            1,
            build_site(kind="office", feeds=1, pdu=None, circuits=[{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}]),
            r"200 V.*120 V: 80 V short",
        ),
    ],
)  # fmt: skip
def test_error_reports_missing_amount(machine: str, nodes: int, site: Site, facts: str) -> None:
    with pytest.raises(GpuyardError, match=facts) as error:
        design_facility(build_cluster(machine, nodes), site)
    assert error.value.exit_status == 1


def test_error_counts_missing_circuits() -> None:
    circuits = [
        {"voltage": "208 V", "amps": "60 A", "phases": 3, "receptacle": "iec-60309-60a-3p-e-9h",
         "count": 1, "feed": feed}
        for feed in ("A", "B")
    ]  # fmt: skip
    with pytest.raises(GpuyardError, match=r"3 circuits of 208 V and 60 A.*1: 2 short"):
        design_facility(build_cluster("dgx-a100", 4), build_site(circuits=circuits))


def test_plug_must_fit_receptacle() -> None:
    with pytest.raises(GpuyardError, match="does not fit the CEE red 32 A socket"):
        design_facility(
            build_cluster(),
            build_site(
                circuits=[
                    {"voltage": "400 V", "amps": "32 A", "phases": 3,
                     "receptacle": "iec-60309-32a-3p-n-e-6h"}
                ]
            ),
        )  # fmt: skip


def test_cords_are_long_enough() -> None:
    pdu = design_example("rack", "machine-room").pdu_choice.pdus[0]
    assert choose_cord("c14", "c13", pdu, 1.1).length_m == 1.2
    assert choose_cord("c14", "c13", pdu, 4.5).length_m == 4.5
    with pytest.raises(GpuyardError, match=r"5\.0 m.* 4\.5 m: 0\.5 m short"):
        choose_cord("c14", "c13", pdu, 5.0)


@pytest.mark.parametrize(
    ("kind", "cooling", "kilowatts"),
    [("office", "air", 5), ("room", "air", 10), ("colocation", "air", 20),
     ("colocation", "rear-door", 45), ("colocation", "liquid", 130)],
)  # fmt: skip
def test_rack_power_by_kind_of_site(kind: str, cooling: str, kilowatts: int) -> None:
    rules = resolve_site_rules(build_site(kind=kind, cooling=cooling, rack={}))
    assert rules.rack_watts == kilowatts * 1000
    assert any(f"{kilowatts} kW per rack" in line for line in rules.assumptions)


def test_feed_loss_of_each_rack() -> None:
    design = design_example("dgx-h100", "colocation")
    for rack in range(design.room.floor.racks):
        placed = design.room.get_rack(rack)
        machines = sum(p.device.kind == "server" for p in placed)
        for loss in list_feed_losses(design, rack):
            assert (loss.full_speed, loss.slower, loss.off) == (len(placed) - machines, machines, 0)
            assert {load.feed for load in loss.remaining_pdus} == {"AB"[loss.feed == "A"]}
            # the other feed carries the whole rack
            watts = sum(p.device.peak_watts for p in placed)
            assert sum(load.va for load in loss.remaining_pdus) == pytest.approx(
                watts / POWER_FACTOR
            )
            assert 0 < loss.fullest_line_share <= 1 + 1e-6
            assert 0 < loss.fullest_bank_share <= 1 + 1e-6


def test_housing_costs_by_hand() -> None:
    design = design_example("rack", "machine-room")
    colocation, on_premises = design.housing_costs
    hours = 8766 / 12
    assert on_premises.energy_usd_per_month == pytest.approx(
        design.typical_watts / 1000 * hours * 1.58 * 0.1278
    )
    assert colocation.rent_usd_per_month == pytest.approx(design.peak_watts / 1000 * 184.06)
    assert on_premises.build_usd == pytest.approx(design.peak_watts / 1000 * 11_000)
    assert on_premises.build_usd_per_month == pytest.approx(design.peak_watts / 1000 * 11_000 / 120)


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
def test_every_design_respects_its_limits(
    machine: str,
    nodes: int,
    circuit: dict[str, Any],
    feeds: int,
    kilowatts: int,
    units: int,
    country: str,
) -> None:
    site = build_site(
        circuits=[circuit],
        feeds=feeds,
        pdu=None,
        country=country,
        rack={"power": f"{kilowatts} kW", "units": units},
    )
    try:
        design = design_facility(build_cluster(machine, nodes), site)
    except GpuyardError as error:
        assert "test site" in str(error)
        return
    assert len(design.room.find_devices("server")) == nodes
    check_limits(design)
    fabric = design.network.compute
    if fabric is not None:
        assert fabric.ports_used <= fabric.ports_total


def test_row_length_adapts_to_cable_limit() -> None:
    def longest_m(design: FacilityDesign) -> float:
        return max(cable.length_m for cable in design.cables)

    cluster, racks = build_cluster(nodes=40), {"power": "4.5 kW"}
    default = design_facility(cluster, build_site(rack=racks))
    limit = f"{longest_m(default) - 0.5:.3f} m"
    adapted = design_facility(cluster, build_site(rack=racks, cable_limit=limit))
    by_length = [
        longest_m(design_facility(cluster, build_site(rack=racks | {"per_row": length})))
        for length in range(4, default.room.floor.racks + 1, 2)
    ]
    assert longest_m(adapted) <= min(by_length) + 0.6  # the width of one rack
    assert any("keep cables short" in line for line in adapted.assumptions)
    check_limits(adapted)
    with pytest.raises(GpuyardError, match="too long"):
        design_facility(cluster, build_site(rack=racks | {"per_row": 12}, cable_limit=limit))


def build_workstations(count: int, **more: Any) -> Cluster:
    """Return a cluster of workstations like the one in the examples."""
    network = {"rate": "10 Gbit/s"} if count > 1 else None
    machine = {"gpu": "rtx-2080-ti", "gpus": 4, "topology": "workstation"}
    document = {"name": "test", "nodes": count, "machine": machine, "network": network}
    return Cluster.model_validate(document | more)


def test_workstation_uses_the_pdu_of_a_nearby_rack() -> None:
    design = design_example("workstation", "machine-room")
    (cord,) = design.cords
    assert cord.kind.length_m <= 3
    assert design.on_desk


def test_office_needs_a_circuit_for_each_workstation() -> None:
    office = read_site(EXAMPLES / "office.site.yaml")
    design = design_facility(build_workstations(2, management_ports=0), office)
    assert design.on_desk
    assert len(design.power[0].pdus) == 2
    assert design.server.volts_minimum == 100
    with pytest.raises(GpuyardError, match=r"(?s)\d circuits of 120 V and 20 A.* 2: \d short"):
        design_facility(build_workstations(4, management_ports=0), office)


def test_workstations_in_a_machine_room_go_on_rack_shelves() -> None:
    design = design_facility(build_workstations(2), read_site(EXAMPLES / "machine-room.site.yaml"))
    assert not design.on_desk
    assert (design.server.supplies, design.server.volts_minimum) == (1, 100)
    assert design.server.name.startswith("workstation with")
