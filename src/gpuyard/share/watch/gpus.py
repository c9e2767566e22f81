"""The GPUs of this machine: which there are, and how busy they are now. What can't be read is None, never an error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpuyard.share.store.config import ShareConfig, SharedGpu

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_AMD = "4098"  # 0x1002, as the kernel's topology writes it
FAKE_READINGS = "fake-readings.json"


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment."""

    memory_used_bytes: int | None = None
    utilisation: float | None = None
    temperature_c: float | None = None
    power_watts: float | None = None
    pids: tuple[int, ...] = ()
    """Processes that have it open for computing."""


class Gpus(Protocol):
    """A source of readings."""

    def read(self) -> Mapping[int, Reading]: ...


class RealGpus:
    """NVIDIA's, through its driver."""

    def read(self) -> Mapping[int, Reading]:
        from gpuyard.hardware.nvml import NoNvml, opened_nvml

        try:
            with opened_nvml() as nvml:
                return {i: _nvml_reading(nvml, i) for i in range(nvml.nvmlDeviceGetCount())}
        except NoNvml:
            return {}


class FakeGpus:
    """Test GPUs: what the share's owner wrote into a file."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FAKE_READINGS

    def read(self) -> Mapping[int, Reading]:
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            return {
                int(index): Reading(**{**reading, "pids": tuple(reading.get("pids", ()))})
                for index, reading in document.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def gpu_source(directory: Path, config: ShareConfig) -> Gpus:
    """The one that fits this share."""
    return FakeGpus(directory) if any(gpu.fake for gpu in config.gpus) else RealGpus()


def found_gpus() -> tuple[SharedGpu, ...]:
    """What this machine has, in the order of nvidia-smi; without any of NVIDIA's, AMD's."""
    from gpuyard.hardware.nvml import NoNvml, opened_nvml

    try:
        with opened_nvml() as nvml:
            return tuple(_nvml_gpu(nvml, i) for i in range(nvml.nvmlDeviceGetCount()))
    except NoNvml:
        return _amd_gpus()


def _nvml_gpu(nvml: Any, index: int) -> SharedGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _ask(nvml, "nvmlDeviceGetName", handle) or "GPU"
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    words = name.decode() if isinstance(name, bytes) else str(name)
    return SharedGpu(index, words, int(memory.total) if memory else None)


def _nvml_reading(nvml: Any, index: int) -> Reading:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return Reading()
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    rates = _ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
    milliwatts = _ask(nvml, "nvmlDeviceGetPowerUsage", handle)
    running = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return Reading(
        int(memory.used) if memory else None,
        rates.gpu / 100 if rates else None,
        _ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
        milliwatts / 1000 if milliwatts is not None else None,
        tuple(process.pid for process in running),
    )


def _ask(nvml: Any, call: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, call)(*arguments)
    except (nvml.NVMLError, AttributeError):  # not every GPU and driver knows everything
        return None


def _amd_gpus() -> tuple[SharedGpu, ...]:
    """Nodes of the kernel's compute topology that compute and are no CPU, numbered from 0 as ROCm does."""
    found: list[SharedGpu] = []
    for node in sorted(_KFD.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (node / "properties").read_text(encoding="ascii").split()
            properties = dict(zip(words[::2], words[1::2], strict=True))
        except (OSError, ValueError):
            continue
        if properties.get("vendor_id") == _AMD and properties.get("simd_count", "0") != "0":
            found.append(SharedGpu(len(found), "AMD GPU", vendor="amd"))
    return tuple(found)
