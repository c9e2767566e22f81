"""Pack devices into as few racks as possible: first-fit-decreasing, then a search if fewer racks may be enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facilities.device import RackDevice

_MAX_RACKS_SEARCHED = 40
_MAX_STEPS = 20_000

Shares = tuple[float, float, float, float]
"""The shares of a rack's units, weight, power, and outlets that one device uses."""
RESOURCES = 4


@dataclass(frozen=True)
class RackLimits:
    """The limits of one rack; `max_by_cords` limits devices whose cords would not fit otherwise."""

    units: int
    weight_kg: float
    watts: float
    max_by_cords: tuple[tuple[RackDevice, int], ...] = ()

    def max_count(self, device: RackDevice) -> int:
        """Return how many of this device alone fit into one rack."""
        return int(1 / max(self.calculate_shares(device)) + 1e-9)

    def calculate_shares(self, device: RackDevice) -> Shares:
        """Return the shares of a rack that one device uses.

        Cords of different devices share the same outlets. If n of this device alone would fill all outlets,
        each one uses 1/n of them.
        """
        by_cords = next((count for other, count in self.max_by_cords if other is device), 0)
        return (
            device.rack_units / self.units,
            device.weight_kg / self.weight_kg,
            device.peak_watts / self.watts,
            1 / by_cords if by_cords else 0.0,
        )


def count_fitting(used: Sequence[float], shares: Shares) -> int:
    """Return how many more devices with these shares fit into a partly used rack."""
    return min(
        int((1 - part) / share + 1e-9) for part, share in zip(used, shares, strict=True) if share
    )


def sum_shares(counts: Sequence[int], shares: Sequence[Shares]) -> list[float]:
    """Return the shares of one rack that these counts of devices use together."""
    return [
        sum(n * share[k] for n, share in zip(counts, shares, strict=True)) for k in range(RESOURCES)
    ]


@dataclass(frozen=True)
class RackPacking:
    """The count of each device in each rack; no packing needs fewer racks than `min_racks`."""

    devices: tuple[RackDevice, ...]
    racks: tuple[tuple[int, ...], ...]
    min_racks: int


def pack_racks(kinds: Sequence[tuple[RackDevice, int]], limits: RackLimits) -> RackPacking:
    """Pack the devices. Each one must fit into an empty rack: check `RackLimits.max_count` first."""
    by_size = sorted(kinds, key=lambda kind: -max(limits.calculate_shares(kind[0])[:3]))
    devices = tuple(device for device, _ in by_size)
    counts = [count for _, count in by_size]
    shares = [limits.calculate_shares(device) for device in devices]
    min_racks = _bound_racks(by_size, limits)
    racks = _pack_first_fit(counts, shares)
    while min_racks < len(racks) <= _MAX_RACKS_SEARCHED:
        search = _PackingSearch(counts, shares, min_racks)
        better = search.run()
        if better is not None:
            racks = better
        elif search.steps < _MAX_STEPS:
            min_racks += 1
        else:
            break
    return RackPacking(devices, tuple(racks), min_racks)


def _bound_racks(kinds: Sequence[tuple[RackDevice, int]], limits: RackLimits) -> int:
    """Return a lower bound: from the total of each resource, and from each device alone."""
    totals = sum_shares([n for _, n in kinds], [limits.calculate_shares(d) for d, _ in kinds])
    alone = [n / limits.max_count(d) for d, n in kinds]
    return max(math.ceil(max(*totals, *alone) - 1e-9), 1)


def _pack_first_fit(counts: Sequence[int], shares: Sequence[Shares]) -> list[tuple[int, ...]]:
    racks: list[list[int]] = []
    for kind, count in enumerate(counts):
        remaining = count
        for rack in racks:
            added = min(remaining, count_fitting(sum_shares(rack, shares), shares[kind]))
            rack[kind] += added
            remaining -= added
        while remaining:
            rack = [0] * len(counts)
            rack[kind] = min(remaining, count_fitting([0.0] * RESOURCES, shares[kind]))
            remaining -= rack[kind]
            racks.append(rack)
    return [tuple(rack) for rack in racks]


class _PackingSearch:
    """A backtracking search that fits everything into a number of racks.

    It goes kind by kind and rack by rack, and puts as many devices as possible into each rack first.
    """

    def __init__(self, counts: Sequence[int], shares: Sequence[Shares], racks: int) -> None:
        self._counts, self._shares = counts, shares
        self._filled = [[0] * len(counts) for _ in range(racks)]
        self.steps = 0

    def run(self) -> list[tuple[int, ...]] | None:
        """Return the racks, or None if nothing fits or the search reached its step limit."""
        fits = self._place_rest(0, 0, self._counts[0])
        return [tuple(rack) for rack in self._filled] if fits else None

    def _place_rest(self, kind: int, rack: int, remaining: int) -> bool:
        self.steps += 1
        if remaining == 0:
            last = kind + 1 == len(self._counts)
            return last or self._place_rest(kind + 1, 0, self._counts[kind + 1])
        fitting = [
            count_fitting(sum_shares(filled, self._shares), self._shares[kind])
            for filled in self._filled[rack:]
        ]
        if sum(fitting) < remaining or self.steps >= _MAX_STEPS:
            return False
        here, max_count = self._filled[rack], min(remaining, fitting[0])
        if rack and self._filled[rack - 1][:kind] == here[:kind]:
            # racks that are equal so far are interchangeable, so the first gets the most
            max_count = min(max_count, self._filled[rack - 1][kind])
        for count in range(max_count, -1, -1):
            here[kind] = count
            if self._place_rest(kind, rack + 1, remaining - count):
                return True
        here[kind] = 0
        return False
