"""Estimate the power that a server draws at the wall, from its nameplate or from its parts and supply losses."""

import itertools
from dataclasses import dataclass

from gpuyard.catalog import Gpu, Machine
from gpuyard.catalog.facility import ServerModel, SupplyGrade

# watts of parts that the catalog does not list; assumed, from common datasheets of 2017 to 2024
_CPU_WATTS = {1: 165.0, 2: 205.0}  # per socket, by number of sockets
_CPU_WATTS_SINCE_2022 = 350.0
_MEMORY_WATTS_PER_GPU_GB = 0.4  # host memory is twice the GPU memory, at 0.2 W per GB
_NIC_WATTS = {"1g": 5.0, "10g": 10.0, "25g": 12.0, "100g": 18.0, "edr": 18.0, "hdr": 22.0}
_NIC_WATTS_FASTER = 26.0
_DISK_WATTS = 12.0
_DISKS = 4
_BOARD_WATTS = 60.0
_NVSWITCH_WATTS_PER_GPU = 50.0
_RACK_FAN_SHARE = 0.15  # of all other parts
_TOWER_FAN_SHARE = 0.03
_TYPICAL_GPU_SHARE = 0.85  # of a GPU's board power, while training
_TYPICAL_REST_SHARE = 0.55  # of the other parts' power
# 80 PLUS, 230 V internal redundant: (share of the rated load, efficiency)
_CURVES: dict[SupplyGrade, tuple[tuple[float, float], ...]] = {
    "gold": ((0.1, 0.80), (0.2, 0.88), (0.5, 0.92), (1.0, 0.88)),
    "platinum": ((0.1, 0.82), (0.2, 0.90), (0.5, 0.94), (1.0, 0.91)),
    "titanium": ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91)),
}
INRUSH_AMPS = 35.0
"""The current of one cold supply for a few milliseconds at 240 V; assumed. Datasheets list 20 to 50 A."""
MAGNETIC_TRIP = 5.0
"""A type C breaker may trip instantly at five times its rating (IEC 60898-1)."""


@dataclass(frozen=True)
class WallPower:
    """Watts at the wall, and the parts that draw them at the output of the supplies."""

    typical_watts: float
    peak_watts: float
    parts: tuple[tuple[str, float], ...]
    lost_watts: float
    """Watts lost in the supplies while all parts draw their maximum."""
    basis: str


def estimate_wall_power(
    server: ServerModel, gpu: Gpu, gpus: int, machine: Machine | None
) -> WallPower:
    """Estimate the peak from the nameplate, or from the parts if there is none; the typical draw from the parts."""
    parts = _list_parts(server, gpu, gpus, machine)
    output = sum(watts for _, watts in parts)
    peak = _draw_at_wall(server, output)
    busy = sum(
        w * (_TYPICAL_GPU_SHARE if name == "GPUs" else _TYPICAL_REST_SHARE) for name, w in parts
    )
    nameplate = server.max_watts
    if nameplate is None:
        return WallPower(
            _draw_at_wall(server, busy), peak, parts, peak - output, "sum of its parts"
        )
    typical = min(_draw_at_wall(server, busy), nameplate)
    return WallPower(
        typical, nameplate, parts, peak - output, "nameplate; typical draw from its parts"
    )


def _draw_at_wall(server: ServerModel, output_watts: float) -> float:
    return wall_watts(output_watts, server.supply_grade, server.supplies, server.supply_watts)


def _list_parts(
    server: ServerModel, gpu: Gpu, gpus: int, machine: Machine | None
) -> tuple[tuple[str, float], ...]:
    sockets = machine.sockets if machine else (1 if server.tower else 2)
    cpu = _CPU_WATTS_SINCE_2022 if gpu.released >= 2022 else _CPU_WATTS[min(sockets, 2)]
    nics = max(machine.nics, 1) if machine else 1
    speed = (machine.nic_link or "").split("-")[-1] if machine else ""
    parts = {
        "GPUs": gpus * gpu.board_watts,
        "CPUs": sockets * cpu,
        "memory": gpus * gpu.memory_gb * _MEMORY_WATTS_PER_GPU_GB,
        "network cards": nics * _NIC_WATTS.get(speed, _NIC_WATTS_FASTER if speed else 10.0),
        "disks": _DISKS * _DISK_WATTS,
        "board": _BOARD_WATTS,
    }
    if machine is not None and machine.topology == "nvswitch":
        parts["NVSwitches"] = gpus * _NVSWITCH_WATTS_PER_GPU
    share = _TOWER_FAN_SHARE if server.tower else _RACK_FAN_SHARE
    parts["fans"] = share * sum(parts.values())
    return tuple(parts.items())


def find_efficiency(grade: SupplyGrade, load_share: float) -> float:
    """Interpolate the efficiency on the grade's curve, which is flat beyond its ends."""
    points = _CURVES[grade]
    if load_share <= points[0][0]:
        return points[0][1]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if load_share <= high:
            return at_low + (at_high - at_low) * (load_share - low) / (high - low)
    return points[-1][1]


def wall_watts(
    output_watts: float, grade: SupplyGrade, supplies: int, supply_watts: float
) -> float:
    """Return the input of all supplies together when they share the load."""
    share = output_watts / (supplies * supply_watts)
    return output_watts / find_efficiency(grade, share)


def count_simultaneous_starts(breaker_amps: float) -> int:
    """Return how many cold supplies may start at the same moment on one breaker."""
    return max(int(MAGNETIC_TRIP * breaker_amps / INRUSH_AMPS), 1)
