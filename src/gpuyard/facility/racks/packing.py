"""Which devices share a rack, in as few racks as possible: first-fit-decreasing, and a search for fewer where
that leaves a gap to the bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facility.device import RackDevice

_MOST_RACKS_SEARCHED = 40
_MOST_STEPS = 20_000

Shares = tuple[float, float, float, float]
RESOURCES = 4


@dataclass(frozen=True)
class Limits:
    """What one rack takes; `most` of one device where its cords allow no more."""

    units: int
    weight_kg: float
    watts: float
    most: tuple[tuple[RackDevice, int], ...] = ()

    def most_of(self, device: RackDevice) -> int:
        """How many of this device alone fit into one rack."""
        return int(1 / max(self.shares(device)) + 1e-9)

    def shares(self, device: RackDevice) -> Shares:
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
class RackPacking:
    """Counts of every device by rack; no packing takes fewer racks than `fewest`."""

    devices: tuple[RackDevice, ...]
    racks: tuple[tuple[int, ...], ...]
    fewest: int


def pack(kinds: Sequence[tuple[RackDevice, int]], limits: Limits) -> RackPacking:
    """Every device must fit into an empty rack: `Limits.most_of` says so before."""
    ordered = sorted(kinds, key=lambda kind: -_size(kind[0], limits))
    devices = tuple(device for device, _ in ordered)
    counts = [count for _, count in ordered]
    fewest = fewest_racks(ordered, limits)
    racks = _first_fit(devices, counts, limits)
    while fewest < len(racks) <= _MOST_RACKS_SEARCHED:
        search = _Search(counts, [limits.shares(device) for device in devices], fewest)
        found = search.racks()
        if found is not None:
            racks = found
        elif search.steps < _MOST_STEPS:
            fewest += 1
        else:
            break
    return RackPacking(devices, tuple(racks), fewest)


def fewest_racks(kinds: Sequence[tuple[RackDevice, int]], limits: Limits) -> int:
    """A bound: the total of each resource over what a rack has of it, and each device by itself."""
    totals = used_by([n for _, n in kinds], [limits.shares(d) for d, _ in kinds])
    alone = [n / limits.most_of(d) for d, n in kinds]
    return max(math.ceil(max(*totals, *alone) - 1e-9), 1)


def _size(device: RackDevice, limits: Limits) -> float:
    return max(limits.shares(device)[:3])


def _first_fit(
    devices: Sequence[RackDevice], counts: Sequence[int], limits: Limits
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


class _Search:
    """Whether everything fits into so many racks: kind by kind, from rack to rack, as many as fit first."""

    def __init__(self, counts: Sequence[int], shares: Sequence[Shares], racks: int) -> None:
        self._counts, self._shares = counts, shares
        self._filled = [[0] * len(counts) for _ in range(racks)]
        self.steps = 0

    def racks(self) -> list[tuple[int, ...]] | None:
        """None where it does not fit, or where that took too many steps to tell."""
        found = self._rest(0, 0, self._counts[0])
        return [tuple(rack) for rack in self._filled] if found else None

    def _rest(self, kind: int, rack: int, left: int) -> bool:
        self.steps += 1
        if left == 0:
            last = kind + 1 == len(self._counts)
            return last or self._rest(kind + 1, 0, self._counts[kind + 1])
        room = [self._room(kind, filled) for filled in self._filled[rack:]]
        if sum(room) < left or self.steps >= _MOST_STEPS:
            return False
        here, most = self._filled[rack], min(left, room[0])
        if rack and self._filled[rack - 1][:kind] == here[:kind]:
            # of racks that are alike so far, the first gets the most
            most = min(most, self._filled[rack - 1][kind])
        for count in range(most, -1, -1):
            here[kind] = count
            if self._rest(kind, rack + 1, left - count):
                return True
        here[kind] = 0
        return False

    def _room(self, kind: int, filled: Sequence[int]) -> int:
        return room_left(used_by(filled, self._shares), self._shares[kind])
