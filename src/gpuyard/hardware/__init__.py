"""The machine: what this host is made of, and how fast GPUs reach each other inside one box."""

from gpuyard.hardware.graph import Device, MachineGraph, Wire
from gpuyard.hardware.host import Host, discover_host
from gpuyard.hardware.presets import PRESETS, build_preset, machine_graph
from gpuyard.hardware.rings import (
    MOST_EXACT_GPUS,
    AllReduce,
    all_reduce,
    best_gpus,
    side_by_side,
    worst_gpus,
)
from gpuyard.hardware.wires import host_to_gpu_bytes_per_second

__all__ = [
    "MOST_EXACT_GPUS",
    "PRESETS",
    "AllReduce",
    "Device",
    "Host",
    "MachineGraph",
    "Wire",
    "all_reduce",
    "best_gpus",
    "build_preset",
    "discover_host",
    "host_to_gpu_bytes_per_second",
    "machine_graph",
    "side_by_side",
    "worst_gpus",
]
