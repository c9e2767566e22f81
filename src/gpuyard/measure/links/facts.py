"""What the kernel tells about this host that can slow links down; what can't be read is None."""

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
    """Read sysfs and procfs under a root; call it right after the GPUs were busy, so that links that
    save power show the speed that they ran at. `addresses` gives the GPUs in NVML's order."""
    found = gpu_addresses(root) if addresses is None else addresses
    slots = tuple(_slot(root, f"GPU{i}", address) for i, address in enumerate(found))
    return HostFacts(
        virtual_machine=_virtual_machine(root),
        iommu=_iommu(root, [slot.address for slot in slots]),
        acs_bridges=_acs_bridges(root, [slot.address for slot in slots]),
        slots=slots,
        last_level_cache_bytes=_last_level_cache_bytes(root),
        busy_share=busy_share,
    )


def gpu_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """NVIDIA GPUs by PCI address, which is as a rule the order that NVML numbers them in."""
    devices = root / "sys/bus/pci/devices"
    return tuple(
        device.name
        for device in sorted(devices.iterdir() if devices.is_dir() else ())
        if _text(device / "vendor") == _NVIDIA
        and (_text(device / "class") or "").startswith(_DISPLAY)
    )


def _slot(root: Path, gpu: str, address: str) -> GpuSlot:
    device = root / "sys/bus/pci/devices" / address
    port = next(_bridges_above(device), None)
    return GpuSlot(
        gpu=gpu,
        address=address,
        width=_lanes(device / "current_link_width"),
        most_width=_lanes(device / "max_link_width"),
        speed=_transfers(device / "current_link_speed"),
        most_speed=_transfers(device / "max_link_speed"),
        port_most_width=_lanes(port / "max_link_width") if port else None,
        port_most_speed=_transfers(port / "max_link_speed") if port else None,
    )


def _bridges_above(device: Path) -> Iterator[Path]:
    """From the port that a device is plugged into up to the root port."""
    yield from (above for above in device.resolve().parents if _ADDRESS.match(above.name))


def _iommu(root: Path, gpus: list[str]) -> IommuMode | None:
    units = root / "sys/class/iommu"
    if not units.is_dir():
        return None
    if not any(units.iterdir()):
        return "off"
    domains = {_text(root / "sys/bus/pci/devices" / gpu / "iommu_group/type") for gpu in gpus} - {
        None
    }
    if domains:
        return "passthrough" if domains == {"identity"} else "translating"
    words = (_text(root / "proc/cmdline") or "").split()
    return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else "translating"


def _acs_bridges(root: Path, gpus: list[str]) -> tuple[str, ...] | None:
    """Bridges whose ACS sends peer traffic upstream; only root may read so far into their config."""
    found: set[str] = set()
    for gpu in gpus:
        for bridge in _bridges_above(root / "sys/bus/pci/devices" / gpu):
            try:
                config = (bridge / "config").read_bytes()
            except OSError:
                return None
            if len(config) <= _EXTENDED_CONFIG:
                return None
            if _redirects_peers(config):
                found.add(bridge.name)
    return tuple(sorted(found))


def _redirects_peers(config: bytes) -> bool:
    offset, seen = _EXTENDED_CONFIG, set[int]()
    while _EXTENDED_CONFIG <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS_ID:
            at = offset + _ACS_CONTROL
            return bool(int.from_bytes(config[at : at + 2], "little") & _ACS_REDIRECT)
        offset = header >> 20 & 0xFFC
    return False


def _virtual_machine(root: Path) -> str | None:
    flags = _text(root / "proc/cpuinfo") or ""
    named = " ".join(
        name
        for part in ("sys_vendor", "product_name")
        if (name := _text(root / "sys/class/dmi/id" / part))
    )
    hypervisor = _text(root / "sys/hypervisor/type")
    if re.search(r"^flags\s*:.*\bhypervisor\b", flags, re.MULTILINE) or hypervisor:
        return named or hypervisor or "unnamed hypervisor"
    return None


def _last_level_cache_bytes(root: Path) -> int | None:
    sizes = [
        int(match[1]) * {"K": 2**10, "M": 2**20}[match[2]]
        for size in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        if (match := re.fullmatch(r"(\d+)([KM])", _text(size) or ""))
    ]
    return max(sizes, default=None)


def _lanes(file: Path) -> int | None:
    text = _text(file) or ""
    # 0 and 255 are what the kernel shows for a link that is down or unknown
    return int(text) if text.isdigit() and 0 < int(text) < 255 else None


def _transfers(file: Path) -> float | None:
    match = re.match(r"([\d.]+) GT/s", _text(file) or "")
    return float(match[1]) if match else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
