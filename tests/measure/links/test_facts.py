"""The host's facts are read from a directory tree like the kernel's."""

import struct
from pathlib import Path

import pytest

from gpuyard.measure.links.facts import find_gpu_addresses, read_host_facts

PORT, SWITCH, GPU = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def config(acs_control: int | None, size: int = 4096) -> bytes:
    """PCI config space with an error-reporting capability first and, after it, ACS."""
    space = bytearray(size)
    if size > 0x100:
        struct.pack_into("<I", space, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
        if acs_control is not None:
            struct.pack_into("<IHH", space, 0x148, 1 << 16 | 0x000D, 0x5F, acs_control)
    return bytes(space)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One GPU behind a switch behind a root port, bare metal, no IOMMU."""
    chain = f"sys/devices/pci0000:00/{PORT}/{SWITCH}/{GPU}"
    write(
        tmp_path,
        {
            f"{chain}/vendor": "0x10de",
            f"{chain}/class": "0x030200",
            f"{chain}/current_link_width": "8",
            f"{chain}/max_link_width": "16",
            f"{chain}/current_link_speed": "2.5 GT/s PCIe",
            f"{chain}/max_link_speed": "16.0 GT/s PCIe",
            f"sys/devices/pci0000:00/{PORT}/{SWITCH}/max_link_width": "16",
            f"sys/devices/pci0000:00/{PORT}/{SWITCH}/max_link_speed": "8.0 GT/s PCIe",
            "proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme sse2",
            "proc/cmdline": "quiet",
            "sys/class/dmi/id/sys_vendor": "Supermicro",
            "sys/devices/system/cpu/cpu0/cache/index2/size": "1024K",
            "sys/devices/system/cpu/cpu0/cache/index3/size": "32768K",
        },
    )
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    at = Path("../../../devices/pci0000:00")
    for name, target in {
        PORT: at / PORT,
        SWITCH: at / PORT / SWITCH,
        GPU: at / PORT / SWITCH / GPU,
    }.items():
        (devices / name).symlink_to(target)
        (devices / name / "config").write_bytes(config(0))
    (tmp_path / "sys/class/iommu").mkdir()
    return tmp_path


def test_the_slot_and_the_port_above_it(root: Path) -> None:
    assert find_gpu_addresses(root) == (GPU,)
    (slot,) = read_host_facts(root).slots
    assert (slot.gpu, slot.address) == ("GPU0", GPU)
    assert (slot.width, slot.max_width, slot.port_max_width) == (8, 16, 16)
    assert (slot.speed, slot.max_speed, slot.port_max_speed) == (2.5, 16.0, 8.0)


def test_only_nvidia_display_devices_are_gpus(root: Path) -> None:
    others = {"0000:00:1f.0": ("0x8086", "0x030000"), "0000:00:1f.3": ("0x10de", "0x040300")}
    for address, (vendor, kind) in others.items():
        folder = f"sys/bus/pci/devices/{address}"
        write(root, {f"{folder}/vendor": vendor, f"{folder}/class": kind})
    assert find_gpu_addresses(root) == (GPU,)


def test_gpus_are_numbered_in_the_order_given(root: Path) -> None:
    facts = read_host_facts(root, addresses=["0000:99:00.0", GPU])
    assert [(slot.gpu, slot.address) for slot in facts.slots] == [
        ("GPU0", "0000:99:00.0"),
        ("GPU1", GPU),
    ]
    assert [slot.width for slot in facts.slots] == [None, 8]


def test_links_that_are_down_or_unknown_are_none(root: Path) -> None:
    device = root / "sys/bus/pci/devices" / GPU
    (device / "current_link_width").write_text("255\n")
    (device / "current_link_speed").write_text("Unknown\n")
    (device / "max_link_width").unlink()
    (slot,) = read_host_facts(root).slots
    assert (slot.width, slot.speed, slot.max_width) == (None, None, None)


@pytest.mark.parametrize(
    ("control", "bridges"),
    [(0x1D, (SWITCH,)), (0x04, (SWITCH,)), (0x01, ()), (0x00, ()), (None, ())],
)
def test_acs_that_redirects_peers(
    root: Path, control: int | None, bridges: tuple[str, ...]
) -> None:
    (root / "sys/bus/pci/devices" / SWITCH / "config").write_bytes(config(control))
    assert read_host_facts(root).acs_bridges == bridges


def test_acs_is_unknown_without_the_right_to_read_it(root: Path) -> None:
    (root / "sys/bus/pci/devices" / SWITCH / "config").write_bytes(config(None, size=64))
    assert read_host_facts(root).acs_bridges is None


def test_a_config_space_that_points_in_circles_ends(root: Path) -> None:
    space = bytearray(config(None))
    struct.pack_into("<I", space, 0x148, 0x100 << 20 | 1 << 16 | 0x0002)
    (root / "sys/bus/pci/devices" / SWITCH / "config").write_bytes(space)
    assert read_host_facts(root).acs_bridges == ()


def test_iommu_off_translating_and_passed_through(root: Path) -> None:
    assert read_host_facts(root).iommu == "off"
    (root / "sys/class/iommu/dmar0").mkdir()
    assert read_host_facts(root).iommu == "translating"
    (root / "proc/cmdline").write_text("quiet intel_iommu=on iommu=pt\n")
    assert read_host_facts(root).iommu == "passthrough"
    # the kernel's actual mode takes precedence over its command line
    write(root, {f"sys/bus/pci/devices/{GPU}/iommu_group/type": "DMA-FQ"})
    assert read_host_facts(root).iommu == "translating"
    write(root, {f"sys/bus/pci/devices/{GPU}/iommu_group/type": "identity"})
    assert read_host_facts(root).iommu == "passthrough"


def test_virtual_machines_by_the_cpus_flag(root: Path) -> None:
    assert read_host_facts(root).virtual_machine is None
    write(
        root,
        {
            "proc/cpuinfo": "processor : 0\nflags\t\t: fpu hypervisor sse2",
            "sys/class/dmi/id/sys_vendor": "Amazon EC2",
            "sys/class/dmi/id/product_name": "p4d.24xlarge",
        },
    )
    assert read_host_facts(root).virtual_machine == "Amazon EC2 p4d.24xlarge"


def test_cache_and_load(root: Path) -> None:
    facts = read_host_facts(root, busy_share=0.5)
    assert facts.last_level_cache_bytes == 32 * 2**20
    assert facts.busy_share == 0.5


def test_missing_files_give_no_facts(tmp_path: Path) -> None:
    facts = read_host_facts(tmp_path)
    assert (facts.iommu, facts.virtual_machine, facts.slots) == (None, None, ())
