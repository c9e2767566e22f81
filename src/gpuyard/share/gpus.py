"""The GPUs of this machine and their current utilization. A value that cannot be read is None, never an error."""

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpuyard.share import processes
from gpuyard.share.caller import user_name
from gpuyard.share.clock import Clock
from gpuyard.share.config import ShareConfig, SharedGpu

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_AMD = "4098"  # 0x1002, as the kernel's topology writes it
FAKE_READINGS = "fake-readings.json"
_MAX_AGE_SECONDS = 1.0


@dataclass(frozen=True)
class Reading:
    """The state of one GPU at one moment."""

    memory_used_bytes: int | None = None
    utilization: float | None = None
    temperature_c: float | None = None
    power_watts: float | None = None
    pids: tuple[int, ...] = ()
    """Processes that use it for computing."""
    memory_by_pid: Mapping[int, int] = field(default_factory=dict)
    """Bytes that each of these processes holds, if the driver tells."""
    memory_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded; None if the GPU does not count them."""


class GpuSource(Protocol):
    """A source of readings by GPU index."""

    def read(self) -> Mapping[int, Reading]: ...


class NvidiaGpus:
    """Readings from NVIDIA's driver."""

    def read(self) -> Mapping[int, Reading]:
        from gpuyard.hardware.nvml import NvmlUnavailable, open_nvml

        try:
            with open_nvml() as nvml:
                return {i: _nvml_reading(nvml, i) for i in range(nvml.nvmlDeviceGetCount())}
        except NvmlUnavailable:
            return {}


class FakeGpus:
    """Readings of test GPUs from a file of the share's owner."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FAKE_READINGS

    def read(self) -> Mapping[int, Reading]:
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            return {int(index): _fake_reading(reading) for index, reading in document.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _fake_reading(document: Mapping[str, Any]) -> Reading:
    memory = {int(pid): size for pid, size in document.get("memory_by_pid", {}).items()}
    pids = tuple(document.get("pids", memory))
    return Reading(**{**document, "pids": pids, "memory_by_pid": memory})


def gpu_source(directory: Path, config: ShareConfig) -> GpuSource:
    """Return the source of readings for a share."""
    return FakeGpus(directory) if any(gpu.fake for gpu in config.gpus) else NvidiaGpus()


_cache: dict[Path, tuple[float, Mapping[int, Reading]]] = {}
_cache_lock = threading.Lock()


def read_recent(directory: Path, config: ShareConfig) -> Mapping[int, Reading]:
    """Return readings that are at most a second old, because waiting clients ask for them many times per second.

    If the driver does not answer, the last readings have to do.
    """
    taken, readings = _cache.get(directory, (-math.inf, {}))
    if time.monotonic() - taken < _MAX_AGE_SECONDS or not _cache_lock.acquire(
        timeout=_MAX_AGE_SECONDS
    ):
        return readings
    try:
        readings = gpu_source(directory, config).read()
        _cache[directory] = time.monotonic(), readings
    finally:
        _cache_lock.release()
    return readings


def utilization_by_gpu(readings: Mapping[int, Reading]) -> dict[int, float]:
    """Return the utilization of each GPU for which it is known."""
    return {
        index: reading.utilization
        for index, reading in readings.items()
        if reading.utilization is not None
    }


def describe_gpu(gpu: SharedGpu, reading: Reading, clock: Clock) -> dict[str, Any]:
    """Return a GPU with its reading and its processes, as `who --json` prints them."""
    document = asdict(reading)
    memory = document.pop("memory_by_pid")
    return {
        "index": gpu.index,
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        **document,
        "processes": [
            {
                "pid": pid,
                "user": user_name(uid),
                "program": processes.program(pid),
                "memory_bytes": memory.get(pid),
                "elapsed_seconds": processes.elapsed_seconds(pid, clock.boot()),
            }
            for pid in reading.pids
            if (uid := processes.owner(pid)) is not None  # otherwise it has ended
        ],
    }


def discover_gpus() -> tuple[SharedGpu, ...]:
    """Return the NVIDIA GPUs of this machine in the order of nvidia-smi, or its AMD GPUs if it has none."""
    from gpuyard.hardware.nvml import NvmlUnavailable, open_nvml

    try:
        with open_nvml() as nvml:
            return tuple(_nvml_gpu(nvml, i) for i in range(nvml.nvmlDeviceGetCount()))
    except NvmlUnavailable:
        return _discover_amd_gpus()


def _nvml_gpu(nvml: Any, index: int) -> SharedGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _query(nvml, "nvmlDeviceGetName", handle) or "GPU"
    memory = _query(nvml, "nvmlDeviceGetMemoryInfo", handle)
    text = name.decode() if isinstance(name, bytes) else str(name)
    return SharedGpu(index, text, int(memory.total) if memory else None)


def _nvml_reading(nvml: Any, index: int) -> Reading:
    handle = _query(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return Reading()
    memory = _query(nvml, "nvmlDeviceGetMemoryInfo", handle)
    rates = _query(nvml, "nvmlDeviceGetUtilizationRates", handle)
    milliwatts = _query(nvml, "nvmlDeviceGetPowerUsage", handle)
    running = _query(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return Reading(
        int(memory.used) if memory else None,
        rates.gpu / 100 if rates else None,
        _query(nvml, "nvmlDeviceGetTemperature", handle, 0),
        milliwatts / 1000 if milliwatts is not None else None,
        tuple(process.pid for process in running),
        {p.pid: int(size) for p in running if (size := getattr(p, "usedGpuMemory", None))},
        # 1 and 0: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
        _query(nvml, "nvmlDeviceGetTotalEccErrors", handle, 1, 0),
    )


def _query(nvml: Any, call: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, call)(*arguments)
    except (nvml.NVMLError, AttributeError):  # not every GPU and driver supports every query
        return None


def _discover_amd_gpus() -> tuple[SharedGpu, ...]:
    """Return the GPUs in the kernel's compute topology, numbered from 0 as in ROCm."""
    gpus: list[SharedGpu] = []
    for node in sorted(_KFD.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (node / "properties").read_text(encoding="ascii").split()
            properties = dict(zip(words[::2], words[1::2], strict=True))
        except (OSError, ValueError):
            continue
        if properties.get("vendor_id") == _AMD and properties.get("simd_count", "0") != "0":
            gpus.append(SharedGpu(len(gpus), "AMD GPU", vendor="amd"))
    return tuple(gpus)
