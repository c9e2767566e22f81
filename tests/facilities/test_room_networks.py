"""The networks of a room: the fabric between machines, storage, and management, wired port by port."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.bill_of_materials import list_bill_items
from gpuyard.facilities.design import FacilityDesign, design_facility
from gpuyard.facilities.fabric import (
    FabricRequest,
    HostPorts,
    TypicalFloor,
    design_fabric,
    find_cheapest_fabric,
)
from gpuyard.facilities.network.cables import list_management_ports, summarize_networks
from gpuyard.facilities.network.devices import build_switch_devices
from gpuyard.facilities.network.room_network import design_networks
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site


def build_cluster(nodes: int = 4, **changes: Any) -> Cluster:
    document = {
        "name": "test",
        "nodes": nodes,
        "machine": "supermicro-4029gp-trt",
        "network": {"link": "infiniband-hdr"},
    }
    return Cluster.model_validate(document | changes, context=known_names())


def test_storage_uses_the_slowest_ethernet_that_carries_the_reads() -> None:
    # 10 GB/s are 20 Gbit/s for each of 4 machines, and for each of the 4 ports of two servers
    network = design_networks(build_cluster(storage={"read": "10 GB/s", "servers": 2}), 4, 12)
    assert network.storage is not None and network.storage_attachment is not None
    assert network.storage.switch.port_gbit_per_second == 25
    assert network.storage.request.endpoints == 4 + 2 * 2
    assert network.assumptions == ()
    # the two ports of one server must carry 40 Gbit/s each, and 40 Gbit/s is no longer sold
    one_server = design_networks(build_cluster(storage={"read": "10 GB/s", "servers": 1}), 4, 12)
    assert one_server.storage is not None
    assert one_server.storage.switch.port_gbit_per_second == 100


def test_unset_storage_is_assumed_and_reported() -> None:
    network = design_networks(build_cluster(nodes=32), 4, 12)
    assert network.storage_attachment is not None
    assert network.storage_attachment.servers == 4
    # 32 × 8 GPUs of 205 MB/s are 52.4 GB/s: 52 Gbit/s on each of eight ports
    assert network.storage is not None
    assert network.storage.switch.port_gbit_per_second == 100
    servers, reads = network.assumptions
    assert "4 storage servers" in servers
    assert "205 MB/s per GPU" in reads


def test_storage_shares_a_single_ethernet_port() -> None:
    ethernet = {"network": {"rate": "10 Gbit/s"}, "machine": {"gpu": "gtx-1080-ti", "gpus": 1}}
    network = design_networks(build_cluster(nodes=8, **ethernet), 4, 12)
    assert network.storage is None
    assert network.compute is not None
    assert network.compute.request.endpoints == 8 + 1
    # 5 GB/s exceed the one port of the storage server
    busy = design_networks(build_cluster(nodes=8, storage={"read": "5 GB/s"}, **ethernet), 4, 12)
    assert busy.storage is not None
    assert busy.storage.switch.port_gbit_per_second == 25


def test_networks_can_be_left_out() -> None:
    no_storage = design_networks(build_cluster(storage={"servers": 0}, management_ports=0), 4, 12)
    assert list(no_storage.fabrics) == ["machines"]
    assert {device.kind for device, _ in no_storage.devices} == {"leaf"}
    assert design_networks(build_cluster(nodes=1), 4, 12).fabrics == {}
    one_machine = design_networks(build_cluster(nodes=1, storage={"servers": 1}), 4, 12)
    assert list(one_machine.fabrics) == ["storage", "management"]


@pytest.mark.parametrize(
    ("storage", "error", "facts"),
    [
        (
            {"servers": 1, "link": "ethernet-25g", "read": "30 GB/s"},
            GpuyardError,
            r"ethernet-25g.* 6\.2 GB/s.* 30\.0 GB/s: 23\.8 GB/s short",
        ),
        (
            {"servers": 1, "link": "nvlink-3"},
            UserMistake,
            r"storage\.link: nvlink-3 .*ethernet or infiniband",
        ),
        (
            {"servers": 1, "read": "900 GB/s"},
            GpuyardError,
            r"storage server .*3,600 Gbit/s.*2,800 Gbit/s short.*'servers'",
        ),
    ],
)
def test_impossible_storage_reports_what_is_missing(
    storage: dict[str, Any], error: type[Exception], facts: str
) -> None:
    with pytest.raises(error, match=facts):
        design_networks(build_cluster(storage=storage), 4, 12)


def check_ports(design: FacilityDesign) -> None:
    """Check that every cable ends on a port of a placed switch, and that no switch exceeds its ports."""
    network = design.network
    for summary in summarize_networks(design.network, design.cables):
        fabric = summary.fabric
        below = Counter(leaf for _, _, leaf in fabric.wiring.endpoints)
        above = Counter[int]()
        for bundle in fabric.wiring.iter_leaf_spine():
            above[bundle.lower] += bundle.links
        for leaf, used in below.items():
            if fabric.switch.uplink_ports:
                assert used <= fabric.switch.ports
                assert above[leaf] <= fabric.switch.uplink_ports
            else:
                assert used + above[leaf] <= fabric.switch.ports
        placed = sum(len(design.room.find_devices(device.kind)) for device, _ in summary.switches)
        assert placed == fabric.shape.leaves + fabric.shape.spines + fabric.shape.cores
        ends, links = fabric.request.endpoints, fabric.shape.links
        assert summary.cables == (ends // 2 if fabric.request.direct else ends + links)
    if network.management is not None:
        ports = list_management_ports(network, design.room)
        assert len(ports) == network.management.request.endpoints
    if network.storage_attachment is not None:
        assert len(design.room.find_devices("storage")) == network.storage_attachment.servers


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    nodes=st.integers(1, 50),
    servers=st.one_of(st.none(), st.integers(0, 9)),
    link=st.sampled_from([None, "ethernet-25g", "infiniband-hdr", "ethernet-100g"]),
    ports=st.integers(1, 3),
    management=st.integers(0, 3),
    ethernet=st.booleans(),
)
def test_every_port_exists_and_every_device_is_placed(
    nodes: int,
    servers: int | None,
    link: str | None,
    ports: int,
    management: int,
    ethernet: bool,
) -> None:
    cluster = build_cluster(
        nodes,
        storage={"servers": servers, "link": link, "ports": ports},
        management_ports=management,
        network={"rate": "25 Gbit/s"} if ethernet else {"link": "infiniband-hdr"},
    )
    check_ports(design_facility(cluster))


def test_bill_lists_switches_ports_and_cables_of_each_network() -> None:
    design = design_facility(build_cluster(nodes=32))
    check_ports(design)
    parts = [item.part for item in list_bill_items(design)]
    for expected in (
        "NVMe storage server",
        "100 Gbit/s ethernet, storage",
        ", storage, host to leaf",
        ", management",
    ):
        assert any(expected in part for part in parts), expected
    # 36 hosts with two ports each, and the switches of two networks, need more than one switch of 48
    assert len(design.room.find_devices("management")) == 2
    assert len(design.room.find_devices("management spine")) == 1
    watts = sum(placed.device.peak_watts for placed in design.room.placed)
    assert watts == design.peak_watts > 32 * design.server.peak_watts + 4 * 1200


def test_director_has_the_boards_that_it_needs() -> None:
    # 100 ports need 3 of 6 boards; 17 ports on the fullest chip, with 3 links per spine board, need all 6
    fabric = design_fabric(FabricRequest(100, 1, "mellanox-cs7520"))
    ((device, count),) = build_switch_devices("machines", fabric)
    assert count == 1
    assert "with 3 leaf and 6 spine boards" in device.name
    # a quarter of the price is the chassis; the rest is proportional to the boards
    assert device.price_usd == pytest.approx(150_000 * (0.25 + 0.75 * 9 / 12))


def test_director_is_the_spine_if_that_is_cheaper() -> None:
    fabric = find_cheapest_fabric(HostPorts(100, "infiniband"), 500, TypicalFloor())
    same_model = design_fabric(FabricRequest(500, 1, "mellanox-sb7800", floor=TypicalFloor()))
    director = design_fabric(
        FabricRequest(500, 1, "mellanox-sb7800", spine="mellanox-cs7520", floor=TypicalFloor())
    )
    prices = [design.bill.total_usd or 0 for design in (same_model, director)]
    assert (fabric.bill.total_usd or 0) <= min(prices)


def test_several_towers_go_into_racks() -> None:
    stations = build_cluster(nodes=5, machine="dgx-station-v100", network={"rate": "10 Gbit/s"})
    design = design_facility(stations)
    assert not design.on_desk
    # four towers of 12 U fill a rack of 48 U; the fifth shares the second rack with the other devices
    assert design.room.floor.racks == 2
    assert all(p.unit + p.device.rack_units <= 49 for p in design.room.placed)


def test_link_inside_a_machine_cannot_join_machines() -> None:
    with pytest.raises(UserMistake, match=r"network\.link: nvlink-3 .*ethernet or infiniband"):
        design_networks(build_cluster(network={"link": "nvlink-3"}), 4, 12)


def test_office_has_no_assumed_storage_server() -> None:
    office = Site.model_validate(
        {
            "name": "an office",
            "kind": "office",
            "circuits": [{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}],
        },
        context=known_names(),
    )
    two = build_cluster(
        nodes=2, machine={"gpu": "rtx-2080-ti", "gpus": 1}, network={"rate": "10 Gbit/s"}
    )
    design = design_facility(two, office)
    assert design.room.find_devices("storage") == []
    assert list(design.network.fabrics) == ["machines", "management"]


def test_error_mentions_assumed_storage_servers() -> None:
    low_voltage = Site.model_validate(
        {
            "name": "low voltage",
            "kind": "room",
            "circuits": [{"voltage": "120 V", "amps": "30 A", "receptacle": "nema-l5-30r"}],
        },
        context=known_names(),
    )
    small = {"machine": {"gpu": "rtx-2080-ti", "gpus": 1}, "network": {"rate": "10 Gbit/s"}}
    with pytest.raises(GpuyardError, match=r"(?s)200 V.*1 assumed storage server.*servers: 0"):
        design_facility(build_cluster(nodes=2, **small), low_voltage)
    design_facility(build_cluster(nodes=2, storage={"servers": 0}, **small), low_voltage)
