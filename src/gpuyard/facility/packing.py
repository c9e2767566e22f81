"""Which devices share a rack, in as few racks as possible: first-fit-decreasing, and CP-SAT where that
leaves a gap to the bound and OR-Tools is installed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facility.balance_model import solver_module
from gpuyard.facility.device import Device

_MOST_RACKS_FOR_THE_MODEL = 40
_SECONDS = 3.0


@dataclass(frozen=True)
class Limits:
    """What one rack takes; `most` of one device where its cords allow no more."""

    units: int
    weight_kg: float
    watts: float
    most: tuple[tuple[Device, int], ...] = ()

    def most_of(self, device: Device) -> int:
        """How many of this device alone fit into one rack."""
        by_power = dict(self.most).get(device, 10**6)
        return min(
            self.units // device.rack_units,
            int(self.weight_kg / device.weight_kg + 1e-9),
            int(self.watts / device.peak_watts + 1e-9) if device.peak_watts else 10**6,
            by_power,
        )

    def hold(self, devices: Sequence[Device], counts: Sequence[int]) -> bool:
        """Whether one rack takes all of these."""
        pairs = list(zip(devices, counts, strict=True))
        return (
            sum(d.rack_units * n for d, n in pairs) <= self.units
            and sum(d.weight_kg * n for d, n in pairs) <= self.weight_kg + 1e-6
            and sum(d.peak_watts * n for d, n in pairs) <= self.watts + 1e-6
            # cords of different devices share the same outlets
            and sum(n / self.most_of(d) for d, n in pairs if d in dict(self.most)) <= 1 + 1e-9
        )


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
    totals = (
        sum(d.rack_units * n for d, n in kinds) / limits.units,
        sum(d.weight_kg * n for d, n in kinds) / limits.weight_kg,
        sum(d.peak_watts * n for d, n in kinds) / limits.watts,
        *(n / limits.most_of(d) for d, n in kinds if n),
    )
    return max(math.ceil(max(totals) - 1e-9), 1)


def _size(device: Device, limits: Limits) -> float:
    return max(
        device.rack_units / limits.units,
        device.weight_kg / limits.weight_kg,
        device.peak_watts / limits.watts,
    )


def _first_fit(
    devices: Sequence[Device], counts: Sequence[int], limits: Limits
) -> list[tuple[int, ...]]:
    racks: list[list[int]] = []
    for kind, count in enumerate(counts):
        left = count
        for rack in racks:
            left -= _filled(rack, kind, left, devices, limits)
        while left:
            rack = [0] * len(devices)
            racks.append(rack)
            left -= _filled(rack, kind, left, devices, limits)
    return [tuple(rack) for rack in racks]


def _filled(
    rack: list[int], kind: int, left: int, devices: Sequence[Device], limits: Limits
) -> int:
    """Put as many as fit into the rack; how many that were."""
    low, high = 0, min(left, limits.most_of(devices[kind]))
    while low < high:
        middle = (low + high + 1) // 2
        if limits.hold(devices, [n + (middle if k == kind else 0) for k, n in enumerate(rack)]):
            low = middle
        else:
            high = middle - 1
    rack[kind] += low
    return low


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
