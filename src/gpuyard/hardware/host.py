"""The host that gpuyard runs on: CPU, memory, GPUs, driver, and network cards. Unreadable values are None."""

import platform
from dataclasses import dataclass
from typing import Any

from gpuyard.cpu import cpu_model, usable_cores
from gpuyard.hardware.nvml import NvmlUnavailable, open_nvml


@dataclass(frozen=True)
class HostGpu:
    """A GPU with the name that its driver reports."""

    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class HostNic:
    """A network interface that is up, with the speed that its driver reports, if any."""

    name: str
    bits_per_second: float | None


@dataclass(frozen=True)
class HostInfo:
    """The parts of this host; `gpu_problem` is the reason why GPUs cannot be read."""

    system: str
    cpu: str
    usable_cores: int
    memory_bytes: int
    gpus: tuple[HostGpu, ...]
    driver: str | None
    gpu_problem: str | None
    nics: tuple[HostNic, ...]

    @property
    def summary(self) -> str:
        gpus = ", ".join(gpu.name for gpu in self.gpus) or "no GPU"
        return f"{self.cpu}, {self.usable_cores} cores, {self.memory_bytes / 2**30:.0f} GiB, {gpus}"


def discover_host() -> HostInfo:
    """Read the parts of this host."""
    import psutil

    gpus, driver, problem = _read_gpus()
    nics = tuple(
        HostNic(name, stats.speed * 1e6 if stats.speed else None)
        for name, stats in sorted(psutil.net_if_stats().items())
        if stats.isup and not name.startswith("lo")
    )
    return HostInfo(
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_model(),
        usable_cores=len(usable_cores()),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        driver=driver,
        gpu_problem=problem,
        nics=nics,
    )


def _read_gpus() -> tuple[tuple[HostGpu, ...], str | None, str | None]:
    """Read GPUs and driver version from NVML, or return the reason why this failed."""
    try:
        with open_nvml() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            gpus = tuple(_read_gpu(nvml, handle) for handle in handles)
            return gpus, str(nvml.nvmlSystemGetDriverVersion()), None
    except NvmlUnavailable as problem:
        return (), None, str(problem)


def _read_gpu(nvml: Any, handle: Any) -> HostGpu:
    try:
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        memory = None
    return HostGpu(str(nvml.nvmlDeviceGetName(handle)), memory)
