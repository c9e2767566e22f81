"""The table of machines."""

import datetime

import pytest

from gpuyard.catalog import gpus, links, machines
from gpuyard.errors import UnknownName
from gpuyard.hardware import get_preset


def test_there_are_enough_to_choose_from() -> None:
    assert len(machines()) >= 20
    for name in ("dgx-1-v100", "dgx-a100", "dgx-h100", "aws-p3-16xlarge", "dell-c4140"):
        assert name in machines()


def test_every_machine_is_made_of_parts_that_the_catalog_has() -> None:
    for machine in machines():
        gpus().get(machine.gpu)
        assert (machine.nic_link is None) == (machine.nics == 0), machine.id
        if machine.nic_link is not None:
            assert links().get(machine.nic_link).kind in {"ethernet", "infiniband"}, machine.id


def test_every_row_names_its_source() -> None:
    for machine in machines():
        assert machine.source.strip()
        assert datetime.date(2010, 1, 1) <= machine.date <= datetime.date(2027, 1, 1), machine.id


def test_every_machine_can_be_wired() -> None:
    for machine in machines():
        graph = get_preset(
            machine.topology, gpus().get(machine.gpu), machine.gpus, machine.socket_link
        )
        assert len(graph.gpus) == machine.gpus


def test_an_nvl72_is_one_nvlink_domain_of_72() -> None:
    for name in ("gb200-nvl72", "gb300-nvl72"):
        machine = machines().get(name)
        graph = get_preset(machine.topology, gpus().get(machine.gpu), machine.gpus)
        assert len(graph.gpus) == 72
        assert graph.path_class("GPU0", "GPU71") == "NV18"
        assert len(graph.devices_of_kind("socket")) == machine.sockets == 36
        # a tray is its own host: four GPUs on two CPUs, and no way except NVLink to the next
        assert [graph.find_socket(f"GPU{i}") for i in (0, 1, 2, 3, 71)] == [
            "CPU0",
            "CPU0",
            "CPU1",
            "CPU1",
            "CPU35",
        ]
        assert graph.pcie_class("GPU0", "GPU3") == "SYS"
        assert graph.pcie_class("GPU3", "GPU4") == "N/A"


def test_the_sockets_of_an_apollo_gen10_are_joined_by_upi() -> None:
    machine = machines().get("hpe-apollo-6500-gen10")
    assert links().get(machine.socket_link or "").name.startswith("Intel UPI")
    graph = get_preset(machine.topology, gpus().get(machine.gpu), machine.gpus, machine.socket_link)
    (between,) = [wire for wire in graph.wires if wire.kind == "socket"]
    assert between.bytes_per_second == links().get("upi-10.4").effective_bytes_per_second


def test_nvlink_topologies_hold_gpus_with_nvlink() -> None:
    for machine in machines():
        gpu = gpus().get(machine.gpu)
        if machine.topology in {"nvswitch", "nvlink-hybrid-cube-mesh"}:
            assert gpu.nvlink_links and not gpu.nvlink_bridge, machine.id
        if machine.topology == "nvlink-pairs":
            assert gpu.nvlink_bridge, machine.id


def test_a_machine_draws_more_than_its_gpus() -> None:
    for machine in machines():
        if machine.max_watts is not None:
            gpu_watts = machine.gpus * gpus().get(machine.gpu).board_watts
            assert machine.max_watts > gpu_watts, machine.id


@pytest.mark.parametrize(
    ("name", "gpus_inside", "nics", "watts", "units"),
    [
        ("dgx-1-v100", 8, (4, "infiniband-edr"), 3500, 3),
        ("dgx-2", 16, (8, "infiniband-edr"), 10000, 10),
        ("dgx-a100", 8, (8, "infiniband-hdr"), 6500, 6),
        ("dgx-h100", 8, (8, "infiniband-ndr"), 10200, 8),
        ("dgx-b200", 8, (8, "infiniband-ndr"), 14300, 10),
    ],
)
def test_the_figures_are_the_datasheets(
    name: str, gpus_inside: int, nics: tuple[int, str], watts: int, units: int
) -> None:
    machine = machines().get(name)
    assert machine.gpus == gpus_inside
    assert (machine.nics, machine.nic_link) == nics
    assert (machine.max_watts, machine.rack_units) == (watts, units)


def test_an_unknown_name_brings_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dgx-1-v100'"):
        machines().get("dgx1-v100")
