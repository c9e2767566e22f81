"""Other doors to a GPU than its own device file: the kernel's DRM nodes, and the instances that MIG divides it into."""

import re
from pathlib import Path

_DEV = Path("/dev")
_DRM = Path("/sys/class/drm")
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = Path("/proc/driver/nvidia")
_DEVICE = re.compile(r"nvidia(\d+)")
_DEVICE_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_FILE_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_NODE = re.compile(r"card\d+|renderD\d+")


def companions(device: str) -> list[str]:
    """Device files of the same GPU as this one is of; none where the kernel says nothing of it."""
    name = Path(device).name
    nvidia = _DEVICE.fullmatch(name)
    if nvidia:
        address = _address_of(nvidia[1])
        nodes = _nodes(_PCI / address / "drm") if address else []
        return [*nodes, *_instances(nvidia[1])]
    if _NODE.fullmatch(name):
        return [node for node in _nodes(_DRM / name / "device" / "drm") if Path(node).name != name]
    return []


def _address_of(minor: str) -> str | None:
    """On the PCI bus, as NVIDIA's driver says it; the DRM nodes are by that."""
    for about in _NVIDIA.glob("gpus/*/information"):
        found = _DEVICE_MINOR.search(_text(about))
        if found and found[1] == minor:
            return about.parent.name.lower()
    return None


def _nodes(directory: Path) -> list[str]:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:  # no driver of a display, or another one
        return []
    return [str(_DEV / "dri" / name) for name in names if _NODE.fullmatch(name)]


def _instances(minor: str) -> list[str]:
    """Each GPU instance and each compute instance of MIG's is a capability with a device file of its own."""
    texts = map(_text, sorted(_NVIDIA.glob(f"capabilities/gpu{minor}/mig/**/access")))
    found = [match for text in texts if (match := _FILE_MINOR.search(text))]
    return [str(_DEV / "nvidia-caps" / f"nvidia-cap{match[1]}") for match in found]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
