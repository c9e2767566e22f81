"""The power and the size of servers, calculated by hand for one machine."""

import pytest

from gpuyard.errors import UserMistake
from gpuyard.facilities.server import build_server_device
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs import Cluster


def test_power_from_parts_by_hand() -> None:
    device, power = build_server_device(read_cluster("supermicro-4029gp-trt"))
    # 8 × 250 W, 2 CPUs of 205 W, 256 GB of GPU memory at 0.4 W, 2 cards of 10 W, 4 disks, and the board
    parts = 2000 + 410 + 102.4 + 20 + 48 + 60
    assert dict(power.parts)["fans"] == pytest.approx(0.15 * parts)
    output = parts * 1.15
    # 4 supplies of 2000 W at 38% are between 94% (at 20%) and 96% (at 50%)
    efficiency = 0.94 + 0.02 * (output / 8000 - 0.2) / 0.3
    assert device.peak_watts == pytest.approx(output / efficiency)
    assert 0.6 * device.peak_watts < device.typical_watts < device.peak_watts


def test_nameplate_is_the_peak() -> None:
    device, power = build_server_device(read_cluster("dgx-h100"))
    assert device.peak_watts == 10_200
    assert power.basis.startswith("nameplate")
    assert (device.rack_units, device.supplies, device.inlet) == (8, 6, "c20")


def test_workstation_does_not_depend_on_their_number() -> None:
    machine = {"gpu": "rtx-2080-ti", "gpus": 4, "topology": "workstation"}
    single, double = (
        build_server_device(Cluster.model_validate({"name": "x", "machine": machine, **more}))
        for more in ({}, {"nodes": 2, "network": {"rate": "10 Gbit/s"}})
    )
    assert single == double
    assert single[0].tower
    assert single[0].volts_minimum == 100
    assert "estimated" in single[0].basis


def test_machines_without_topology_are_rack_servers() -> None:
    machine = {"gpu": "rtx-2080-ti", "gpus": 4}
    cluster = {"name": "x", "nodes": 2, "machine": machine, "network": {"rate": "10 Gbit/s"}}
    assert not build_server_device(Cluster.model_validate(cluster))[0].tower


def test_supplies_of_every_catalog_machine_carry_its_parts() -> None:
    from gpuyard.catalog import machines
    from gpuyard.catalog.facility import servers

    for machine in machines():
        if machine.id.startswith("aws-"):
            continue
        device, power = build_server_device(read_cluster(machine.id))
        assert device.peak_watts >= device.typical_watts > 0, machine.id
        if machine.id in servers():
            row = servers().get(machine.id)
            output = sum(watts for _, watts in power.parts)
            assert output <= row.supplies * row.supply_watts, machine.id


def test_cloud_machine_needs_no_room() -> None:
    with pytest.raises(UserMistake, match=r"p4d.*cloud"):
        build_server_device(read_cluster("aws-p4d-24xlarge"))
