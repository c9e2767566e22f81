"""Device files of GPUs, which need not be numbered as their indices are, and other doors to a GPU than its own file: the
kernel's DRM nodes, and the instances that MIG divides it into."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.share.store.config import SharedGpu

DeviceNumber = tuple[int, int]
"""A character device's major and minor number."""
_DEV = Path("/dev")
_DRM = Path("/sys/class/drm")
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = Path("/proc/driver/nvidia")
_DEVICE = re.compile(r"nvidia(\d+)")
_DEVICE_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_FILE_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_NODE = re.compile(r"card\d+|renderD\d+")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_FIRST_RENDER_NODE = 128  # of the kernel's DRM devices


def device_file(gpu: "SharedGpu") -> str:
    """What a process opens to use it."""
    if gpu.vendor == "amd":
        nodes = _render_nodes()
        number = nodes[gpu.index] if gpu.index < len(nodes) else _FIRST_RENDER_NODE + gpu.index
        return f"/dev/dri/renderD{number}"
    return f"/dev/nvidia{_minor_number(gpu.index)}"


def device_number(index: int) -> DeviceNumber:
    """Of a test GPU: below "mem", where the kernel has no device and never opens one."""
    return 1, 100 + index


def number_of(path: str) -> DeviceNumber:
    """Of a device file."""
    status = os.stat(path)  # noqa: PTH116
    return os.major(status.st_rdev), os.minor(status.st_rdev)


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


def _minor_number(index: int) -> int:
    """The driver numbers devices as it found them, NVML as they are on the bus; where it can't be asked, the same."""
    from gpuyard.hardware.nvml import NoNvml, opened_nvml

    try:
        with opened_nvml() as nvml:
            try:
                return int(nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(index)))
            except (nvml.NVMLError, AttributeError):
                return index
    except NoNvml:
        return index


def _render_nodes() -> list[int]:
    """Of the compute nodes that are GPUs, in ROCm's order."""
    found = []
    for node in sorted(_KFD.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (node / "properties").read_text(encoding="ascii").split()
            properties = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        except (OSError, ValueError):
            continue
        if properties.get("simd_count") and properties.get("drm_render_minor"):
            found.append(properties["drm_render_minor"])
    return found
