"""Discovery of this host from sysfs trees that are laid out like the recorded machines."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.errors import MissingRequirement
from gpuyard.hardware.discover import discover_machine


class Sysfs:
    """Writes a /sys with PCI functions and NUMA nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bus/pci/devices").mkdir(parents=True)

    def node(self, number: int, cpus: str, package: int = 0) -> None:
        self._write(self.root / f"devices/system/node/node{number}/cpulist", cpus)
        first = cpus.partition("-")[0]
        topology = self.root / f"devices/system/cpu/cpu{first}/topology"
        self._write(topology / "physical_package_id", str(package))

    def function(
        self, path: str, pci_class: str, vendor: str, numa: int = -1, **files: str
    ) -> Path:
        place = self.root / "devices" / path
        for name, text in {
            "class": pci_class, "vendor": vendor, "numa_node": str(numa), **files,
        }.items():  # fmt: skip
            self._write(place / name, text)
        (self.root / "bus/pci/devices" / place.name).symlink_to(place)
        return place

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


GEN3: dict[str, Any] = {"max_link_speed": "8.0 GT/s PCIe", "current_link_width": "16"}
IDLE: dict[str, Any] = {**GEN3, "current_link_speed": "2.5 GT/s PCIe"}


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """A /sys of the machine in lstopo/k80-4gpu-hwloc-v1.xml."""
    tree = Sysfs(tmp_path / "sys")
    tree.node(0, "0-7", 0)
    tree.node(1, "8-15", 1)
    for numa, bus, (port, up, left, right) in (
        (0, "00", ("00:03.0", "04:00.0", "05:08.0/0000:06:00.0", "05:10.0/0000:07:00.0")),
        (1, "80", ("80:03.0", "82:00.0", "83:08.0/0000:84:00.0", "83:10.0/0000:85:00.0")),
    ):
        root = f"pci0000:{bus}/0000:{port}"
        tree.function(root, "0x060400", "0x8086", numa, **GEN3)
        tree.function(f"{root}/0000:{up}", "0x060400", "0x10b5", numa, **GEN3)
        for side in (left, right):
            downstream, gpu = side.split("/")
            tree.function(f"{root}/0000:{up}/0000:{downstream}", "0x060400", "0x10b5", numa, **GEN3)
            tree.function(
                f"{root}/0000:{up}/0000:{downstream}/{gpu}", "0x030200", "0x10de", numa, **IDLE
            )
    tree.function("pci0000:80/0000:80:01.0", "0x060400", "0x8086", 1, **GEN3)
    nic = tree.function("pci0000:80/0000:80:01.0/0000:81:00.0", "0x028000", "0x15b3", 1,
                        max_link_speed="8.0 GT/s PCIe", current_link_width="8")  # fmt: skip
    (nic / "infiniband/mlx4_0").mkdir(parents=True)
    tree.function("pci0000:00/0000:00:1c.2", "0x060400", "0x8086", 0)
    tree.function("pci0000:00/0000:00:1c.2/0000:09:00.0", "0x030000", "0x19e5", 0)
    drive = tree.function("pci0000:00/0000:00:1d.0", "0x010802", "0x144d", 0)
    (drive / "nvme/nvme0").mkdir(parents=True)
    return tree


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_two_boards_behind_switches(sysfs: Sysfs) -> None:
    graph = discover_machine(sysfs.root)
    assert [graph.path_class("GPU0", gpu) for gpu in graph.gpus] == ["X", "PIX", "SYS", "SYS"]
    assert [graph.device(gpu).numa_node for gpu in graph.gpus] == [0, 0, 1, 1]
    assert [socket.cpu_affinity for socket in graph.devices_of_kind("socket")] == ["0-7", "8-15"]
    assert len(graph.devices_of_kind("switch")) == 2
    assert [nic.label for nic in graph.devices_of_kind("nic")] == ["mlx4_0"]
    assert graph.path_class("GPU3", "NIC0") == "PHB"
    assert [drive.label for drive in graph.devices_of_kind("nvme")] == ["nvme0"]
    slots = {wire.b: (wire.generation, wire.width) for wire in graph.wires if wire.kind == "pcie"}
    assert (slots["GPU0"], slots["NIC0"]) == ((3, 16), (3, 8))


def test_a_slow_port_limits_a_fast_gpu(tmp_path: Path) -> None:
    tree = Sysfs(tmp_path / "sys")
    tree.node(0, "0-15")
    tree.function("pci0000:00/0000:00:01.0", "0x060400", "0x8086", **GEN3)
    tree.function("pci0000:00/0000:00:01.0/0000:01:00.0", "0x030000", "0x10de",
                  max_link_speed="16.0 GT/s PCIe", current_link_width="8")  # fmt: skip
    slot = next(wire for wire in discover_machine(tree.root).wires if wire.b == "GPU0")
    assert (slot.generation, slot.width) == (3, 8)


def test_this_host() -> None:
    if not Path("/sys/devices").is_dir():
        pytest.skip("no sysfs here")
    graph = discover_machine()
    assert graph.devices_of_kind("socket")
    for device in graph.devices:
        assert graph.find_socket(device.id)


def test_a_container_without_pci_has_a_socket(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    assert [device.id for device in discover_machine(tmp_path).devices] == ["CPU0"]


def test_without_sysfs_lstopo_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirement, match="install hwloc"):
        discover_machine(tmp_path / "none")
    recording = Path(__file__).parent / "recorded/lstopo/power8-4p100-hwloc-v3.xml"
    lstopo = tmp_path / "lstopo"
    lstopo.write_text(f"#!/bin/sh\nwhile read -r line; do echo \"$line\"; done < '{recording}'\n")
    lstopo.chmod(0o755)
    assert len(discover_machine(tmp_path / "none").gpus) == 4


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


class Nvml:
    """Stands for NVML of the same machine, with reversed GPU order, NVLink pairs, and one failing call."""

    NVMLError = NvmlError
    NVML_NVLINK_MAX_LINKS, NVML_FEATURE_ENABLED = 6, 1
    NVML_NVLINK_DEVICE_TYPE_SWITCH, NVML_P2P_STATUS_OK = 2, 0
    buses = ("00000000:85:00.0", "00000000:84:00.0", "00000000:07:00.0", "00000000:06:00.0")

    def __init__(self, *, switched: bool = False) -> None:
        self.switched = switched

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.buses)

    def nvmlDeviceGetHandleByIndex(self, i: int) -> str:
        return f"handle {i}"

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(busId=self.buses[int(handle[-1])])

    def nvmlDeviceGetName(self, handle: str) -> str:
        if handle == "handle 3":
            raise NvmlError("Unknown Error")
        return "Tesla V100-SXM2-16GB"

    def nvmlDeviceGetNvLinkState(self, _handle: str, link: int) -> int:
        if link > 3:
            raise NvmlError("Not Supported")
        return int(link < 2)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, _handle: str, _link: int) -> int:
        return 2 if self.switched else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, _link: int) -> SimpleNamespace:
        if self.switched:
            return SimpleNamespace(busId="00000000:B0:00.0")
        return SimpleNamespace(busId=self.buses[int(handle[-1]) ^ 1].upper())

    def nvmlDeviceGetP2PStatus(self, a: str, b: str, _capability: int) -> int:
        return 0 if {a, b} == {"handle 0", "handle 1"} else 3


def test_order_links_and_peers_come_from_nvml(
    sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    graph = discover_machine(sysfs.root)
    assert [graph.device(gpu).numa_node for gpu in graph.gpus] == [1, 1, 0, 0]
    assert [graph.path_class("GPU0", gpu) for gpu in graph.gpus] == ["X", "NV2", "SYS", "SYS"]
    assert graph.device("GPU0").gpu == "v100-sxm2-16gb"
    assert graph.device("GPU3").gpu is None
    assert graph.pcie_peers == frozenset({frozenset({"GPU0", "GPU1"})})


def test_nvswitches_come_from_nvml(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(switched=True))
    graph = discover_machine(sysfs.root)
    assert len(graph.devices_of_kind("nvswitch")) == 1
    assert {graph.path_class("GPU0", gpu) for gpu in graph.gpus[1:]} == {"NV2"}
