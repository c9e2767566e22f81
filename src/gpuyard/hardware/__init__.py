"""The machine graph: how the GPUs of one machine are connected, and the bandwidth that they get.

`host.py` describes the machine that gpuyard runs on.
"""

from gpuyard.hardware.graph import Device, MachineGraph, Wire
from gpuyard.hardware.presets import PRESETS, build_preset, get_preset
from gpuyard.hardware.rings import (
    MAX_EXACT_GPUS,
    AllReduce,
    estimate_all_reduce,
    find_best_gpus,
    find_worst_gpus,
    host_to_gpu_bytes_per_second,
    plan_concurrent_jobs,
)

__all__ = [
    "MAX_EXACT_GPUS",
    "PRESETS",
    "AllReduce",
    "Device",
    "MachineGraph",
    "Wire",
    "build_preset",
    "estimate_all_reduce",
    "find_best_gpus",
    "find_worst_gpus",
    "get_preset",
    "host_to_gpu_bytes_per_second",
    "plan_concurrent_jobs",
]
