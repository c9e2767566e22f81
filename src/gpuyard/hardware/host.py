"""What this host is: CPU, memory, GPUs, driver, network cards. What can't be read is `None`, never a crash."""

import platform
from dataclasses import dataclass
from typing import Any

from gpuyard.cpu import cpu_model, usable_cores
from gpuyard.hardware.nvml import NoNvml, opened_nvml


@dataclass(frozen=True)
class HostGpu:
    """A GPU as its driver names it."""

    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class HostNic:
    """A network interface that is up; the speed is what the driver says, where it says anything."""

    name: str
    bits_per_second: float | None


@dataclass(frozen=True)
class ThisHost:
    """The machine at hand."""

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


def discover_host() -> ThisHost:
    """Look at this machine."""
    import psutil

    gpus, driver, problem = _read_gpus()
    nics = tuple(
        HostNic(name, stats.speed * 1e6 if stats.speed else None)
        for name, stats in sorted(psutil.net_if_stats().items())
        if stats.isup and not name.startswith("lo")
    )
    return ThisHost(
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
    """GPUs and driver by NVML, or the reason why there are none to see."""
    try:
        with opened_nvml() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            gpus = tuple(_read_gpu(nvml, handle) for handle in handles)
            return gpus, str(nvml.nvmlSystemGetDriverVersion()), None
    except NoNvml as problem:
        return (), None, str(problem)


def _read_gpu(nvml: Any, handle: Any) -> HostGpu:
    try:
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        memory = None
    return HostGpu(str(nvml.nvmlDeviceGetName(handle)), memory)
