"""The device files of GPUs: their own files, DRM nodes, and MIG instances. Their numbers may differ from GPU indices."""

import contextlib
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

from gpuyard.share.config import ShareConfig, SharedGpu
from gpuyard.share.models import DeviceNumber

_DEV = Path("/dev")
_DRM = Path("/sys/class/drm")
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = Path("/proc/driver/nvidia")
_NVIDIA_DEVICE = re.compile(r"nvidia(\d+)")
_DEVICE_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_FILE_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_DRM_NODE = re.compile(r"card\d+|renderD\d+")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_FIRST_RENDER_NODE = 128  # of the kernel's DRM devices


def device_file(gpu: SharedGpu) -> str:
    """Return the file that a process opens to use a GPU."""
    if gpu.vendor == "amd":
        nodes = _amd_render_nodes()
        number = nodes[gpu.index] if gpu.index < len(nodes) else _FIRST_RENDER_NODE + gpu.index
        return f"/dev/dri/renderD{number}"
    return f"/dev/nvidia{_nvidia_minor(gpu.index)}"


def fake_device_number(index: int) -> DeviceNumber:
    """Return the device number of a test GPU: a "mem" number for which the kernel has no device."""
    return 1, 100 + index


def split_device_numbers(
    config: ShareConfig, indices: Collection[int]
) -> tuple[list[DeviceNumber], list[DeviceNumber]]:
    """Return the device numbers of these GPUs, and those of all other GPUs; missing devices are left out."""
    own: list[DeviceNumber] = []
    others: list[DeviceNumber] = []
    for gpu in config.gpus:
        device = gpu.device or ""
        for path in (device, *_find_companions(device)):
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116
                number = os.major(status.st_rdev), os.minor(status.st_rdev)
                (own if gpu.index in indices else others).append(number)
    return own, others


def has_device_open(pid: int, numbers: Collection[DeviceNumber]) -> bool:
    """Return whether a process has a device open or mapped. For root, who may look at every process."""
    for kind in ("fd", "map_files"):
        try:
            names = os.listdir(f"/proc/{pid}/{kind}")  # noqa: PTH208 - pathlib is several times slower
        except OSError:  # it has ended
            continue
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/{kind}/{name}")  # noqa: PTH116
                number = os.major(status.st_rdev), os.minor(status.st_rdev)
                if stat.S_ISCHR(status.st_mode) and number in numbers:
                    return True
    return False


def _find_companions(device: str) -> list[str]:
    """Return the other device files of the same GPU, as far as the kernel lists them."""
    name = Path(device).name
    nvidia = _NVIDIA_DEVICE.fullmatch(name)
    if nvidia:
        address = _pci_address(nvidia[1])
        nodes = _drm_nodes(_PCI / address / "drm") if address else []
        return [*nodes, *_mig_instances(nvidia[1])]
    if _DRM_NODE.fullmatch(name):
        nodes = _drm_nodes(_DRM / name / "device" / "drm")
        return [node for node in nodes if Path(node).name != name]
    return []


def _pci_address(minor: str) -> str | None:
    """Return the PCI address that NVIDIA's driver reports for a device; DRM nodes are listed by address."""
    for path in _NVIDIA.glob("gpus/*/information"):
        match = _DEVICE_MINOR.search(_read_text(path))
        if match and match[1] == minor:
            return path.parent.name.lower()
    return None


def _drm_nodes(directory: Path) -> list[str]:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:  # no display driver
        return []
    return [str(_DEV / "dri" / name) for name in names if _DRM_NODE.fullmatch(name)]


def _mig_instances(minor: str) -> list[str]:
    """Return the device files of MIG's GPU and compute instances, each of which is a capability of the driver."""
    texts = map(_read_text, sorted(_NVIDIA.glob(f"capabilities/gpu{minor}/mig/**/access")))
    matches = [match for text in texts if (match := _FILE_MINOR.search(text))]
    return [str(_DEV / "nvidia-caps" / f"nvidia-cap{match[1]}") for match in matches]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _nvidia_minor(index: int) -> int:
    """Return the device number of a GPU; its index if NVML does not report it.

    The driver numbers devices as it finds them, and NVML by their position on the bus.
    """
    from gpuyard.hardware.nvml import NvmlUnavailable, open_nvml

    try:
        with open_nvml() as nvml:
            try:
                return int(nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(index)))
            except (nvml.NVMLError, AttributeError):
                return index
    except NvmlUnavailable:
        return index


def _amd_render_nodes() -> list[int]:
    """Return the render nodes of GPUs, in ROCm's order."""
    minors = []
    for node in sorted(_KFD.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (node / "properties").read_text(encoding="ascii").split()
            properties = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        except (OSError, ValueError):
            continue
        if properties.get("simd_count") and properties.get("drm_render_minor"):
            minors.append(properties["drm_render_minor"])
    return minors
