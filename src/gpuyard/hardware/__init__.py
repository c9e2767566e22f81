"""The machine: how fast GPUs reach each other inside one box; what this host is made of is in `host.py`."""

from gpuyard.hardware.graph import Device, MachineGraph, Wire
from gpuyard.hardware.presets import PRESETS, build_preset, machine_graph
from gpuyard.hardware.rings import (
    MOST_EXACT_GPUS,
    AllReduce,
    all_reduce,
    best_gpus,
    host_to_gpu_bytes_per_second,
    side_by_side,
    worst_gpus,
)

__all__ = [
    "MOST_EXACT_GPUS",
    "PRESETS",
    "AllReduce",
    "Device",
    "MachineGraph",
    "Wire",
    "all_reduce",
    "best_gpus",
    "build_preset",
    "host_to_gpu_bytes_per_second",
    "machine_graph",
    "side_by_side",
    "worst_gpus",
]
