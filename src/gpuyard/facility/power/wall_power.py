"""How much power a server takes from the wall, from its nameplate or from its parts and what its power
supplies lose."""

import itertools
from dataclasses import dataclass

from gpuyard.catalog import Gpu, Machine
from gpuyard.catalog.facility import ServerModel, SupplyGrade

# Watts of parts that no machine row lists; assumed, from usual datasheets of 2017 to 2024
_CPU_WATTS = {1: 165.0, 2: 205.0}  # of each socket, by how many there are
_CPU_WATTS_SINCE_2022 = 350.0
_MEMORY_WATTS_PER_GPU_GB = 0.4  # host memory of twice the GPUs', 0.2 W a GB
_NIC_WATTS = {"1g": 5.0, "10g": 10.0, "25g": 12.0, "100g": 18.0, "edr": 18.0, "hdr": 22.0}
_NIC_WATTS_FASTER = 26.0
_DISK_WATTS = 12.0
_DISKS = 4
_BOARD_WATTS = 60.0
_NVSWITCH_WATTS_PER_GPU = 50.0
_FANS_OF_A_RACK_SERVER = 0.15  # of everything else
_FANS_OF_A_TOWER = 0.03
_TYPICAL_GPU = 0.85  # of its board power while training; the rest of the machine is busy for a half
_TYPICAL_REST = 0.55
# 80 PLUS, 230 V internal redundant: efficiency at a share of the rated load
_CURVES: dict[SupplyGrade, tuple[tuple[float, float], ...]] = {
    "gold": ((0.1, 0.80), (0.2, 0.88), (0.5, 0.92), (1.0, 0.88)),
    "platinum": ((0.1, 0.82), (0.2, 0.90), (0.5, 0.94), (1.0, 0.91)),
    "titanium": ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91)),
}
INRUSH_AMPS = 35.0
"""Of one cold supply for a few milliseconds at 240 V; assumed, datasheets give 20 to 50."""
MAGNETIC_TRIP = 5.0
"""A type C breaker may trip at once from five times its rating (IEC 60898-1)."""


@dataclass(frozen=True)
class WallPower:
    """Watts at the wall, and the parts they come from (at the supplies' output)."""

    typical_watts: float
    peak_watts: float
    parts: tuple[tuple[str, float], ...]
    lost_watts: float
    """In the supplies, with all parts at their most."""
    basis: str


def wall_power_of(server: ServerModel, gpu: Gpu, gpus: int, machine: Machine | None) -> WallPower:
    """The nameplate where the maker gives one is the peak; the typical draw comes from the parts."""
    parts = _parts(server, gpu, gpus, machine)
    output = sum(watts for _, watts in parts)
    peak = _wall(server, output)
    busy = sum(w * (_TYPICAL_GPU if name == "GPUs" else _TYPICAL_REST) for name, w in parts)
    nameplate = server.max_watts
    if nameplate is None:
        return WallPower(_wall(server, busy), peak, parts, peak - output, "added up from its parts")
    typical = min(_wall(server, busy), nameplate)
    return WallPower(typical, nameplate, parts, peak - output, "nameplate; typical from its parts")


def _wall(server: ServerModel, output_watts: float) -> float:
    return wall_watts(output_watts, server.supply_grade, server.supplies, server.supply_watts)


def _parts(
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
    share = _FANS_OF_A_TOWER if server.tower else _FANS_OF_A_RACK_SERVER
    parts["fans"] = share * sum(parts.values())
    return tuple(parts.items())


def efficiency(grade: SupplyGrade, load_share: float) -> float:
    """On the curve between its points, and level outside of them."""
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
    """What all supplies together take in when they share the load."""
    share = output_watts / (supplies * supply_watts)
    return output_watts / efficiency(grade, share)


def most_at_once(breaker_amps: float) -> int:
    """How many cold supplies one breaker takes at the same moment."""
    return max(int(MAGNETIC_TRIP * breaker_amps / INRUSH_AMPS), 1)
