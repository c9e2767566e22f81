"""The tables of switches, cables, and storage."""

from gpuyard.catalog import links
from gpuyard.catalog.fabric import cables, storage_options, switches


def test_the_switches_that_are_often_wrong() -> None:
    ndr = switches().get("nvidia-qm9700")
    assert (ndr.ports, ndr.port_gbit_per_second, ndr.cages) == (64, 400, 32)
    hdr = switches().get("nvidia-qm8700")
    assert (hdr.ports, hdr.port_gbit_per_second) == (40, 200)
    director = switches().get("mellanox-cs7520")
    assert (director.ports, director.spine_boards, director.chip_ports) == (216, 6, 36)
    assert director.leaf_boards is not None and director.ports_per_leaf_board is not None
    assert director.leaf_boards * director.ports_per_leaf_board == director.ports


def test_a_port_speaks_a_link_of_its_rate() -> None:
    for switch in switches():
        link = links().get(switch.link)
        assert link.kind == switch.kind, switch.id
        assert abs(link.raw_bytes_per_second / switch.port_bytes_per_second - 1) < 0.05, switch.id


def test_there_is_a_cable_for_every_port() -> None:
    rates = {cable.gbit_per_second for cable in cables()}
    for switch in switches():
        assert {switch.port_gbit_per_second, switch.up_gbit_per_second} <= rates, switch.id


def test_networks_reach_from_1_to_800_gigabits() -> None:
    rates = {switch.port_gbit_per_second for switch in switches()}
    assert {1, 10, 25, 100, 200, 400, 800} <= rates
    spoken = {switch.link for switch in switches() if switch.kind == "infiniband"}
    assert {"infiniband-hdr", "infiniband-ndr", "infiniband-xdr"} <= spoken


def test_prices_and_power_have_a_basis() -> None:
    for switch in switches():
        assert (switch.price_usd is None) == (switch.price_basis is None), switch.id
        assert (switch.max_watts is None) == (switch.watts_basis is None), switch.id


def test_direct_attach_copper_ends_at_3_metres() -> None:
    for cable in cables():
        assert list(cable.lengths_m) == sorted(cable.lengths_m), cable.id
        assert cable.kind != "dac" or cable.reach_m <= 3, cable.id


def test_storage_reads_no_slower_than_it_writes() -> None:
    for option in storage_options():
        assert option.read_gb_per_second >= option.write_gb_per_second, option.id
