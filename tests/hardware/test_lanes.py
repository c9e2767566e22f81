"""PCIe lane budgets: lanes that cards need and lanes that CPUs have."""

import pytest

from gpuyard.catalog import gpus, links
from gpuyard.catalog.hardware import cpus
from gpuyard.errors import UserMistake
from gpuyard.hardware.lanes import LaneBudget, count_nic_lanes, create_lane_budget


def budget(
    cpu: str, gpu: str = "rtx-3090", count: int = 4, nic: str | None = None, sockets: int = 1
) -> LaneBudget:
    card = links().get(nic) if nic else None
    return create_lane_budget(
        cpus().get(cpu), sockets, gpus().get(gpu), count, nic=card, nics=1, drives=1
    )


def test_four_gpus_and_a_network_card() -> None:
    enough = budget("epyc-7742", nic="infiniband-hdr")
    assert (enough.required_lanes, enough.available_lanes, enough.spare_lanes) == (
        64 + 16 + 4,
        128,
        44,
    )
    assert enough.fits and not enough.remedies()
    short = budget("core-i9-10980xe", nic="infiniband-hdr")
    assert (short.spare_lanes, short.max_lanes_per_gpu) == (48 - 84, 4)
    first, *others = short.remedies()
    assert first.startswith("PCIe 3.0 x4") and "3 instead of 12 GB/s" in first
    assert any("PCIe switches" in remedy for remedy in others)
    assert any("CPU with more lanes: " in remedy for remedy in others)


def test_two_gpus_in_a_desktop_get_half_a_slot_each() -> None:
    assert budget("ryzen-9-7950x", "rtx-4090", 1).fits
    two = budget("ryzen-9-7950x", "rtx-4090", 2)
    assert not two.fits
    assert two.max_lanes_per_gpu == 8


def test_the_older_of_cpu_and_gpu_determines_the_slot() -> None:
    assert str(budget("xeon-gold-6248", "rtx-3090").slot) == "PCIe 3.0 x16"
    assert str(budget("epyc-9654", "rtx-3090").slot) == "PCIe 4.0 x16"
    assert str(budget("epyc-9654", "rtx-5090").slot) == "PCIe 5.0 x16"


def test_a_second_socket_adds_lanes_unless_the_socket_link_uses_them() -> None:
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
def test_a_network_card_needs_lanes_for_its_rate(nic: str, generation: int, lanes: int) -> None:
    assert count_nic_lanes(links().get(nic), generation) == lanes


def test_the_table_of_cpus_is_plausible() -> None:
    for cpu in cpus():
        assert cpu.source and 16 <= cpu.pcie_lanes <= 136, cpu.id
        assert (cpu.dual_socket_lanes is None) == (cpu.max_sockets == 1), cpu.id
