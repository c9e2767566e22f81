"""Reads the clock of this rank's GPU and why it is reduced, its use, memory, and power, and its processes, from NVML.

It needs nvidia-ml-py. Every call may fail on some driver; facts whose call fails are left out.
"""

import importlib
import sys
from typing import Any

# bits of NVML's nvmlClocksEventReasons, with the names that nvidia-smi shows
REASONS = {
    0x4: "SW Power Cap",
    0x8: "HW Slowdown",
    0x20: "SW Thermal Slowdown",
    0x40: "HW Thermal Slowdown",
    0x80: "HW Power Brake Slowdown",
}


class GpuMeter:
    """Reads one GPU through a library that stays open."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> dict[str, Any]:
        """Return the facts by the keys of a line."""
        nvml = self._nvml
        facts: dict[str, Any] = {
            "clock_mhz": self._call("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "max_clock_mhz": self._call("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        }
        bits = self._call("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # its name before driver 535
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is not None:
            facts["clock_reasons"] = [name for bit, name in REASONS.items() if bits & bit]
        processes = self._call("nvmlDeviceGetComputeRunningProcesses")
        if processes is not None:
            facts["gpu_processes"] = len(processes)
        rates = self._call("nvmlDeviceGetUtilizationRates")
        memory = self._call("nvmlDeviceGetMemoryInfo")
        milliwatts = self._call("nvmlDeviceGetPowerUsage")
        facts["gpu_utilization"] = None if rates is None else rates.gpu / 100
        facts["gpu_memory_bytes"] = None if memory is None else int(memory.used)
        facts["gpu_watts"] = None if milliwatts is None else milliwatts / 1000
        return {key: value for key, value in facts.items() if value is not None}

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None


def open_gpu() -> GpuMeter | None:
    """Open the GPU that torch uses in this process; None without one. Raise an error of NVML if it is not usable."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    # the number of a GPU in CUDA differs from that in NVML; its UUID does not
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    return GpuMeter(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
