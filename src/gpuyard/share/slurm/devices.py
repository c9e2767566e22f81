"""The device files of GPUs, which need not be numbered as their indices are."""

from pathlib import Path

from gpuyard.share.store.config import SharedGpu

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_FIRST_RENDER_NODE = 128  # of the kernel's DRM devices


def device_file(gpu: SharedGpu) -> str:
    """What a process opens to use it."""
    if gpu.vendor == "amd":
        nodes = _render_nodes()
        number = nodes[gpu.index] if gpu.index < len(nodes) else _FIRST_RENDER_NODE + gpu.index
        return f"/dev/dri/renderD{number}"
    return f"/dev/nvidia{_minor_number(gpu.index)}"


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
