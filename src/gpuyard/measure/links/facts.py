"""Reads host settings that can slow links down from sysfs and procfs; unreadable values are None."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuyard.measure.links.records import GpuSlot, HostFacts, IommuMode

_ADDRESS = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_NVIDIA, _DISPLAY = "0x10de", ("0x0300", "0x0302")  # VGA and 3D controllers

# PCI Express Base Specification 7.7.11 (Access Control Services): capability 0x0d, control register at
# offset 6, bit 2 redirects requests between peers upstream, bit 3 their completions
_EXTENDED_CONFIG, _ACS_ID, _ACS_CONTROL = 0x100, 0x0D, 6
_ACS_REDIRECT = 0b1100


def read_host_facts(
    root: Path = Path("/"),
    *,
    addresses: Sequence[str] | None = None,
    busy_share: float | None = None,
) -> HostFacts:
    """Read the host's settings below a root directory.

    Call it right after the GPUs were busy: idle links save power and show a lower speed. `addresses` lists the GPUs
    in NVML's order.
    """
    if addresses is None:
        addresses = find_gpu_addresses(root)
    slots = tuple(_read_slot(root, f"GPU{i}", address) for i, address in enumerate(addresses))
    return HostFacts(
        virtual_machine=_find_virtual_machine(root),
        iommu=_read_iommu(root, addresses),
        acs_bridges=_find_acs_bridges(root, addresses),
        slots=slots,
        last_level_cache_bytes=_read_last_level_cache_bytes(root),
        busy_share=busy_share,
    )


def find_gpu_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the PCI addresses of NVIDIA GPUs in ascending order, which is usually NVML's order."""
    devices = root / "sys/bus/pci/devices"
    return tuple(
        device.name
        for device in sorted(devices.iterdir() if devices.is_dir() else ())
        if _read_text(device / "vendor") == _NVIDIA
        and (_read_text(device / "class") or "").startswith(_DISPLAY)
    )


def _read_slot(root: Path, gpu: str, address: str) -> GpuSlot:
    device = root / "sys/bus/pci/devices" / address
    port = next(_list_bridges(device), None)
    return GpuSlot(
        gpu=gpu,
        address=address,
        width=_read_lanes(device / "current_link_width"),
        max_width=_read_lanes(device / "max_link_width"),
        speed=_read_transfers(device / "current_link_speed"),
        max_speed=_read_transfers(device / "max_link_speed"),
        port_max_width=_read_lanes(port / "max_link_width") if port else None,
        port_max_speed=_read_transfers(port / "max_link_speed") if port else None,
    )


def _list_bridges(device: Path) -> Iterator[Path]:
    """List the bridges from the port that a device is plugged into up to the root port."""
    yield from (parent for parent in device.resolve().parents if _ADDRESS.match(parent.name))


def _read_iommu(root: Path, gpus: Sequence[str]) -> IommuMode | None:
    units = root / "sys/class/iommu"
    if not units.is_dir():
        return None
    if not any(units.iterdir()):
        return "off"
    devices = root / "sys/bus/pci/devices"
    domains = {_read_text(devices / gpu / "iommu_group/type") for gpu in gpus} - {None}
    if domains:
        return "passthrough" if domains == {"identity"} else "translating"
    arguments = set((_read_text(root / "proc/cmdline") or "").split())
    return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & arguments else "translating"


def _find_acs_bridges(root: Path, gpus: Sequence[str]) -> tuple[str, ...] | None:
    """Find bridges whose ACS sends peer traffic upstream; only root can read that part of the config."""
    redirecting: set[str] = set()
    for gpu in gpus:
        for bridge in _list_bridges(root / "sys/bus/pci/devices" / gpu):
            try:
                config = (bridge / "config").read_bytes()
            except OSError:
                return None
            if len(config) <= _EXTENDED_CONFIG:
                return None
            if _redirects_peers(config):
                redirecting.add(bridge.name)
    return tuple(sorted(redirecting))


def _redirects_peers(config: bytes) -> bool:
    offset, visited = _EXTENDED_CONFIG, set[int]()
    while _EXTENDED_CONFIG <= offset <= len(config) - 8 and offset not in visited:
        visited.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS_ID:
            start = offset + _ACS_CONTROL
            return bool(int.from_bytes(config[start : start + 2], "little") & _ACS_REDIRECT)
        offset = header >> 20 & 0xFFC
    return False


def _find_virtual_machine(root: Path) -> str | None:
    cpuinfo = _read_text(root / "proc/cpuinfo") or ""
    product = " ".join(
        text
        for file in ("sys_vendor", "product_name")
        if (text := _read_text(root / "sys/class/dmi/id" / file))
    )
    hypervisor = _read_text(root / "sys/hypervisor/type")
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) or hypervisor:
        return product or hypervisor or "unnamed hypervisor"
    return None


def _read_last_level_cache_bytes(root: Path) -> int | None:
    sizes = [
        int(match[1]) * {"K": 2**10, "M": 2**20}[match[2]]
        for size in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        if (match := re.fullmatch(r"(\d+)([KM])", _read_text(size) or ""))
    ]
    return max(sizes, default=None)


def _read_lanes(file: Path) -> int | None:
    text = _read_text(file) or ""
    # the kernel shows 0 or 255 for a link that is down or unknown
    return int(text) if text.isdigit() and 0 < int(text) < 255 else None


def _read_transfers(file: Path) -> float | None:
    match = re.match(r"([\d.]+) GT/s", _read_text(file) or "")
    return float(match[1]) if match else None


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
