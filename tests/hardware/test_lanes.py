"""Whether a CPU has the PCIe lanes for a machine's cards."""

import pytest

from gpuyard.catalog import gpus, links
from gpuyard.catalog.hardware import cpus
from gpuyard.errors import UserMistake
from gpuyard.hardware.lanes import LaneBudget, lane_budget, nic_lanes


def budget(
    cpu: str, gpu: str = "rtx-3090", count: int = 4, nic: str | None = None, sockets: int = 1
) -> LaneBudget:
    card = links().get(nic) if nic else None
    return lane_budget(cpus().get(cpu), sockets, gpus().get(gpu), count, nic=card, nics=1, drives=1)


def test_four_gpus_and_a_network_card() -> None:
    enough = budget("epyc-7742", nic="infiniband-hdr")
    assert (enough.wanted, enough.there, enough.left) == (64 + 16 + 4, 128, 44)
    assert enough.fits and not enough.remedies()
    short = budget("core-i9-10980xe", nic="infiniband-hdr")
    assert (short.left, short.gpu_lanes_left) == (48 - 84, 4)
    first, *others = short.remedies()
    assert first == "PCIe 3.0 x4 for each GPU: 3 instead of 12 GB/s"
    assert any("PCIe switches" in remedy for remedy in others)
    assert any(remedy.startswith("a CPU with more lanes: ") for remedy in others)


def test_a_desktop_halves_its_slot_for_two_gpus() -> None:
    assert budget("ryzen-9-7950x", "rtx-4090", 1).fits
    two = budget("ryzen-9-7950x", "rtx-4090", 2)
    assert not two.fits
    assert two.gpu_lanes_left == 8


def test_the_slower_of_cpu_and_gpu_makes_the_slot() -> None:
    assert str(budget("xeon-gold-6248", "rtx-3090").slot) == "PCIe 3.0 x16"
    assert str(budget("epyc-9654", "rtx-3090").slot) == "PCIe 4.0 x16"
    assert str(budget("epyc-9654", "rtx-5090").slot) == "PCIe 5.0 x16"


def test_a_second_socket_brings_lanes_where_they_are_not_spent_between_them() -> None:
    assert cpus().get("xeon-platinum-8480-plus").lanes(2) == 160
    assert cpus().get("epyc-7742").lanes(2) == cpus().get("epyc-7742").lanes(1) == 128
    short = budget("xeon-platinum-8380", count=8)
    assert "two sockets" not in " ".join(short.remedies())  # 132 of 128
    assert "two sockets with 128 lanes" in " ".join(
        budget("xeon-platinum-8380", count=6).remedies()
    )
    with pytest.raises(UserMistake, match="up to 1 sockets, got 2"):
        cpus().get("threadripper-pro-5995wx").lanes(2)


@pytest.mark.parametrize(
    ("nic", "generation", "lanes"),
    [
        ("ethernet-10g", 3, 4),
        ("ethernet-100g", 3, 16),
        ("ethernet-100g", 4, 8),
        ("infiniband-hdr", 4, 16),
        ("infiniband-ndr", 5, 16),
        ("ethernet-25g", 5, 4),
    ],
)
def test_a_network_card_takes_what_its_rate_needs(nic: str, generation: int, lanes: int) -> None:
    assert nic_lanes(links().get(nic), generation) == lanes


def test_the_table_of_cpus_is_plausible() -> None:
    for cpu in cpus():
        assert cpu.source and 16 <= cpu.pcie_lanes <= 136, cpu.id
        assert (cpu.lanes_of_two is None) == (cpu.most_sockets == 1), cpu.id
