"""Which devices share a rack, in as few racks as possible: first-fit-decreasing, and CP-SAT where that
leaves a gap to the bound and OR-Tools is installed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facility.device import Device
from gpuyard.facility.power.phase_model import solver_module

_MOST_RACKS_FOR_THE_MODEL = 40
_SECONDS = 3.0


Shares = tuple[float, float, float, float]
RESOURCES = 4


@dataclass(frozen=True)
class Limits:
    """What one rack takes; `most` of one device where its cords allow no more."""

    units: int
    weight_kg: float
    watts: float
    most: tuple[tuple[Device, int], ...] = ()

    def most_of(self, device: Device) -> int:
        """How many of this device alone fit into one rack."""
        return int(1 / max(self.shares(device)) + 1e-9)

    def shares(self, device: Device) -> Shares:
        """What one device takes of a rack's units, weight, power and outlets. Cords of different
        devices share the same outlets, so what each kind alone could have is shared out evenly."""
        by_cords = next((most for other, most in self.most if other is device), 0)
        return (
            device.rack_units / self.units,
            device.weight_kg / self.weight_kg,
            device.peak_watts / self.watts,
            1 / by_cords if by_cords else 0.0,
        )


def room_left(used: Sequence[float], shares: Shares) -> int:
    """How many more of a device with these shares fit beside what is used."""
    return min(
        int((1 - taken) / share + 1e-9) for taken, share in zip(used, shares, strict=True) if share
    )


def used_by(counts: Sequence[int], shares: Sequence[Shares]) -> list[float]:
    """What so many of each take of one rack."""
    return [
        sum(n * share[k] for n, share in zip(counts, shares, strict=True)) for k in range(RESOURCES)
    ]


@dataclass(frozen=True)
class Packing:
    """Counts of every device by rack; no packing takes fewer racks than `fewest`."""

    devices: tuple[Device, ...]
    racks: tuple[tuple[int, ...], ...]
    fewest: int


def pack(kinds: Sequence[tuple[Device, int]], limits: Limits) -> Packing:
    """Every device must fit into an empty rack: `Limits.most_of` says so before."""
    ordered = sorted(kinds, key=lambda kind: -_size(kind[0], limits))
    devices = tuple(device for device, _ in ordered)
    counts = [count for _, count in ordered]
    fewest = fewest_racks(ordered, limits)
    racks = _first_fit(devices, counts, limits)
    if fewest < len(racks) <= _MOST_RACKS_FOR_THE_MODEL and len(devices) > 1:
        racks, fewest = _modelled(devices, counts, limits, racks, fewest)
    return Packing(devices, tuple(racks), fewest)


def fewest_racks(kinds: Sequence[tuple[Device, int]], limits: Limits) -> int:
    """A bound: the total of each resource over what a rack has of it, and each device by itself."""
    totals = used_by([n for _, n in kinds], [limits.shares(d) for d, _ in kinds])
    alone = [n / limits.most_of(d) for d, n in kinds]
    return max(math.ceil(max(*totals, *alone) - 1e-9), 1)


def _size(device: Device, limits: Limits) -> float:
    return max(limits.shares(device)[:3])


def _first_fit(
    devices: Sequence[Device], counts: Sequence[int], limits: Limits
) -> list[tuple[int, ...]]:
    shares = [limits.shares(device) for device in devices]
    racks: list[list[int]] = []
    for kind, count in enumerate(counts):
        left = count
        for rack in racks:
            added = min(left, room_left(used_by(rack, shares), shares[kind]))
            rack[kind] += added
            left -= added
        while left:
            rack = [0] * len(devices)
            rack[kind] = min(left, room_left([0.0] * RESOURCES, shares[kind]))
            left -= rack[kind]
            racks.append(rack)
    return [tuple(rack) for rack in racks]


def _modelled(
    devices: Sequence[Device],
    counts: Sequence[int],
    limits: Limits,
    racks: list[tuple[int, ...]],
    fewest: int,
) -> tuple[list[tuple[int, ...]], int]:
    """As few racks as CP-SAT finds; what first-fit found where it finds no better."""
    cp = solver_module()
    if cp is None:
        return racks, fewest
    model = cp.CpModel()
    numbers = range(len(racks))
    used = [model.new_bool_var(f"used {r}") for r in numbers]
    amount = [
        [model.new_int_var(0, min(n, limits.most_of(d)), f"{k} {r}") for r in numbers]
        for k, (d, n) in enumerate(zip(devices, counts, strict=True))
    ]
    for k, count in enumerate(counts):
        model.add(sum(amount[k]) == count)
    for r in numbers:
        here = [(d, amount[k][r]) for k, d in enumerate(devices)]
        model.add(sum(d.rack_units * n for d, n in here) <= limits.units * used[r])
        model.add(
            sum(_up(d.weight_kg) * n for d, n in here) <= int(limits.weight_kg * 10) * used[r]
        )
        model.add(sum(_up(d.peak_watts) * n for d, n in here) <= int(limits.watts * 10) * used[r])
        powered = [(math.lcm(*(m for _, m in limits.most)) // m, d) for d, m in limits.most]
        if powered:
            share = sum(w * amount[devices.index(d)][r] for w, d in powered if d in devices)
            model.add(share <= math.lcm(*(m for _, m in limits.most)))
        if r:
            model.add(used[r - 1] >= used[r])
    model.add(sum(used) >= fewest)
    model.minimize(sum(used))
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds = _SECONDS
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    if solver.solve(model) not in {cp.OPTIMAL, cp.FEASIBLE}:
        return racks, fewest
    bound = max(fewest, math.ceil(solver.best_objective_bound - 1e-6))
    if round(solver.objective_value) >= len(racks):
        return racks, bound
    found = [tuple(solver.value(amount[k][r]) for k in range(len(devices))) for r in numbers]
    return [rack for rack in found if any(rack)], bound


def _up(value: float) -> int:
    """In tenths, rounded up, so that no rounding overloads a rack."""
    return math.ceil(value * 10 - 1e-6)
