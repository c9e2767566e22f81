"""The networks of a room: storage and management beside the fabric between machines, wired port by port."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.bill_of_materials import bill_of_materials
from gpuyard.facility.design import FacilityDesign, design_facility
from gpuyard.facility.fabric import (
    FabricRequest,
    HostPorts,
    TypicalFloor,
    bill_of,
    cheapest_fabric,
    design_fabric,
)
from gpuyard.facility.network.cables import managed_ports, network_figures
from gpuyard.facility.network.devices import switch_devices
from gpuyard.facility.network.room_network import network_for
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site


def cluster(nodes: int = 4, **changes: Any) -> Cluster:
    described = {
        "name": "test",
        "nodes": nodes,
        "machine": "supermicro-4029gp-trt",
        "network": {"link": "infiniband-hdr"},
    }
    return Cluster.model_validate(described | changes, context=known_names())


def test_storage_has_the_slowest_ethernet_that_carries_the_reads() -> None:
    # 10 GB/s are 20 Gbit/s for each of 4 machines and 20 for each of the 4 ports of two servers
    network = network_for(cluster(storage={"read": "10 GB/s", "servers": 2}), 4, 12)
    assert network.storage is not None and network.storage_attachment is not None
    assert network.storage.switch.port_gbit_per_second == 25
    assert network.storage.request.endpoints == 4 + 2 * 2
    assert network.assumed == ()
    # with one server its two ports must carry 40 Gbit/s each, and 40 is no longer sold
    alone = network_for(cluster(storage={"read": "10 GB/s", "servers": 1}), 4, 12)
    assert alone.storage is not None
    assert alone.storage.switch.port_gbit_per_second == 100


def test_what_is_not_said_is_assumed_and_told() -> None:
    network = network_for(cluster(nodes=32), 4, 12)
    assert network.storage_attachment is not None
    assert network.storage_attachment.servers == 4
    # 32 × 8 GPUs of 205 MB/s are 52.4 GB/s: 52 Gbit/s on each of eight ports
    assert network.storage is not None
    assert network.storage.switch.port_gbit_per_second == 100
    servers, reads = network.assumed
    assert "4 storage servers" in servers
    assert "205 MB/s per GPU" in reads


def test_storage_shares_a_single_port_of_ethernet() -> None:
    ethernet = {"network": {"rate": "10 Gbit/s"}, "machine": {"gpu": "gtx-1080-ti", "gpus": 1}}
    network = network_for(cluster(nodes=8, **ethernet), 4, 12)
    assert network.storage is None
    assert network.compute is not None
    assert network.compute.request.endpoints == 8 + 1
    # 5 GB/s are more than the one port of its server carries
    busy = network_for(cluster(nodes=8, storage={"read": "5 GB/s"}, **ethernet), 4, 12)
    assert busy.storage is not None
    assert busy.storage.switch.port_gbit_per_second == 25


def test_networks_that_are_left_out() -> None:
    local = network_for(cluster(storage={"servers": 0}, management_ports=0), 4, 12)
    assert list(local.fabrics) == ["machines"]
    assert {device.kind for device, _ in local.devices} == {"leaf"}
    assert network_for(cluster(nodes=1), 4, 12).fabrics == {}
    one = network_for(cluster(nodes=1, storage={"servers": 1}), 4, 12)
    assert list(one.fabrics) == ["storage", "management"]


@pytest.mark.parametrize(
    ("storage", "error", "sentence"),
    [
        (
            {"servers": 1, "link": "ethernet-25g", "read": "30 GB/s"},
            GpuyardError,
            r"4 ports of machines and 2 of storage servers on ethernet-25g read 6.2 GB/s.*23.8 GB/s short",
        ),
        ({"servers": 1, "link": "nvlink-3"}, UserMistake, "is inside a machine"),
        (
            {"servers": 1, "read": "900 GB/s"},
            GpuyardError,
            r"each port of a storage server must carry 3,600 Gbit/s.*2,800 Gbit/s short",
        ),
    ],
)
def test_storage_that_can_not_be(
    storage: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        network_for(cluster(storage=storage), 4, 12)


def check_ports(design: FacilityDesign) -> None:
    """Every cable ends on a port of a switch that stands in a rack, and none has more than it has."""
    network = design.network
    for figures in network_figures(design.network, design.cables):
        fabric = figures.fabric
        below = Counter(leaf for _, _, leaf in fabric.wiring.endpoints)
        above = Counter[int]()
        for bundle in fabric.wiring.leaf_spine():
            above[bundle.lower] += bundle.links
        for leaf, used in below.items():
            if fabric.switch.uplink_ports:
                assert used <= fabric.switch.ports
                assert above[leaf] <= fabric.switch.uplink_ports
            else:
                assert used + above[leaf] <= fabric.switch.ports
        placed = sum(len(design.room.of_kind(device.kind)) for device, _ in figures.boxes)
        assert placed == fabric.shape.leaves + fabric.shape.spines + fabric.shape.cores
        ends, links = fabric.request.endpoints, fabric.shape.links
        assert figures.cables == (ends // 2 if fabric.request.direct else ends + links)
    if network.management is not None:
        managed = managed_ports(network, design.room)
        assert len(managed) == network.management.request.endpoints
    if network.storage_attachment is not None:
        assert len(design.room.of_kind("storage")) == network.storage_attachment.servers


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    nodes=st.integers(1, 50),
    servers=st.one_of(st.none(), st.integers(0, 9)),
    link=st.sampled_from([None, "ethernet-25g", "infiniband-hdr", "ethernet-100g"]),
    ports=st.integers(1, 3),
    management=st.integers(0, 3),
    ethernet=st.booleans(),
)
def test_every_port_is_there_and_every_box_has_its_place(
    nodes: int,
    servers: int | None,
    link: str | None,
    ports: int,
    management: int,
    ethernet: bool,
) -> None:
    described = cluster(
        nodes,
        storage={"servers": servers, "link": link, "ports": ports},
        management_ports=management,
        network={"rate": "25 Gbit/s"} if ethernet else {"link": "infiniband-hdr"},
    )
    check_ports(design_facility(described))


def test_the_bill_has_switches_ports_and_cables_of_each_network() -> None:
    design = design_facility(cluster(nodes=32))
    check_ports(design)
    parts = [item.part for item in bill_of_materials(design)]
    for wanted in (
        "NVMe storage server",
        "100 Gbit/s ethernet, storage",
        ", storage, host to leaf",
        ", management",
    ):
        assert any(wanted in part for part in parts), wanted
    # 36 hosts with two ports each and the switches of two networks: more than one switch of 48
    assert len(design.room.of_kind("management")) == 2
    assert len(design.room.of_kind("management spine")) == 1
    watts = sum(placed.device.peak_watts for placed in design.room.placed)
    assert watts == design.peak_watts > 32 * design.server.peak_watts + 4 * 1200


def test_a_director_is_bought_with_the_boards_that_it_needs() -> None:
    # 100 ports on boards of 36 are 3 of 6; 17 on the fullest chip, 3 links to a spine board: all 6
    fabric = design_fabric(FabricRequest(100, 1, "mellanox-cs7520"))
    ((device, count),) = switch_devices("machines", fabric)
    assert count == 1
    assert "with 3 leaf and 6 spine boards" in device.name
    # a quarter is the chassis, the rest goes by boards
    assert device.price_usd == pytest.approx(150_000 * (0.25 + 0.75 * 9 / 12))


def test_a_director_stands_above_leaves_where_that_is_cheaper() -> None:
    wanted = HostPorts(100, "infiniband")
    fabric = cheapest_fabric(wanted, 500, TypicalFloor())
    own = design_fabric(FabricRequest(500, 1, "mellanox-sb7800", floor=TypicalFloor()))
    director = design_fabric(
        FabricRequest(500, 1, "mellanox-sb7800", spine="mellanox-cs7520", floor=TypicalFloor())
    )
    prices = [bill_of(one).total_usd or 0 for one in (own, director)]
    assert (bill_of(fabric).total_usd or 0) <= min(prices)


def test_several_towers_stand_in_racks() -> None:
    stations = cluster(nodes=5, machine="dgx-station-v100", network={"rate": "10 Gbit/s"})
    design = design_facility(stations)
    assert not design.on_desk
    # four of 12 U fill a rack of 48 U; the fifth shares the second with what is beside the machines
    assert design.room.floor.racks == 2
    assert all(p.unit + p.device.rack_units <= 49 for p in design.room.placed)


def test_a_link_inside_a_machine_joins_no_machines() -> None:
    with pytest.raises(UserMistake, match=r"network\.link: nvlink-3 is inside a machine"):
        network_for(cluster(network={"link": "nvlink-3"}), 4, 12)


def test_an_office_has_no_storage_server_that_nobody_asked_for() -> None:
    office = Site.model_validate(
        {
            "name": "an office",
            "kind": "office",
            "circuits": [{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}],
        },
        context=known_names(),
    )
    two = cluster(nodes=2, machine={"gpu": "rtx-2080-ti", "gpus": 1}, network={"rate": "10 Gbit/s"})
    design = design_facility(two, office)
    assert design.room.of_kind("storage") == []
    assert list(design.network.fabrics) == ["machines", "management"]


def test_a_refusal_says_what_was_only_assumed() -> None:
    low = Site.model_validate(
        {
            "name": "low voltage",
            "kind": "room",
            "circuits": [{"voltage": "120 V", "amps": "30 A", "receptacle": "nema-l5-30r"}],
        },
        context=known_names(),
    )
    small = {"machine": {"gpu": "rtx-2080-ti", "gpus": 1}, "network": {"rate": "10 Gbit/s"}}
    with pytest.raises(
        GpuyardError, match=r"(?s)needs 200 V.*1 storage server that nobody asked for"
    ):
        design_facility(cluster(nodes=2, **small), low)
    design_facility(cluster(nodes=2, storage={"servers": 0}, **small), low)
