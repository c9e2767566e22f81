"""The racks in their rows, the place of each device in a rack, and the lengths of the cables between devices."""

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from gpuyard.facilities.device import Contents, RackDevice

RACK_WIDTH_M = 0.6
ROW_PITCH_M = 2.4
"""A rack 1.2 m deep, and an aisle of 1.2 m."""
UNIT_M = 0.04445
_TRAY_M = 0.4  # from the top of a rack to the tray above it
_SLACK_M = 0.6  # for both ends together


@dataclass(frozen=True)
class PlacedDevice:
    """A device in its rack; `unit` is its lowest rack unit, counted from 1 at the floor."""

    device: RackDevice
    number: int
    """The number among devices of the same kind in the whole room, from 1."""
    rack: int
    unit: int

    @property
    def label(self) -> str:
        return f"{self.device.kind} {self.number}"


@dataclass(frozen=True)
class FloorPlan:
    """Racks from left to right, row by row."""

    racks: int
    units: int
    per_row: int

    def measure_distance_m(self, rack: int, other: int) -> float:
        """Return the distance between two racks along the trays."""
        rows = abs(rack // self.per_row - other // self.per_row)
        columns = abs(rack % self.per_row - other % self.per_row)
        return columns * RACK_WIDTH_M + rows * ROW_PITCH_M

    def measure_cable_m(self, first: PlacedDevice, second: PlacedDevice) -> float:
        """Return the length of a cable: inside one rack, or up to the tray, along it, and down."""
        if first.rack == second.rack:
            return abs(first.unit - second.unit) * UNIT_M + _SLACK_M
        rise = sum((self.units - placed.unit) * UNIT_M + _TRAY_M for placed in (first, second))
        return rise + self.measure_distance_m(first.rack, second.rack) + _SLACK_M


@dataclass(frozen=True)
class Room:
    """The racks and all devices in them."""

    floor: FloorPlan
    placed: tuple[PlacedDevice, ...]

    @functools.cached_property
    def _by_rack(self) -> list[list[PlacedDevice]]:
        racks: list[list[PlacedDevice]] = [[] for _ in range(self.floor.racks)]
        for placed in self.placed:
            racks[placed.rack].append(placed)
        return racks

    def get_rack(self, rack: int) -> list[PlacedDevice]:
        return self._by_rack[rack]

    def count_contents(self, rack: int) -> Contents:
        return tuple(Counter(placed.device for placed in self.get_rack(rack)).items())

    def find_devices(self, kind: str) -> list[PlacedDevice]:
        """Return the devices of one kind, sorted by number."""
        devices = [placed for placed in self.placed if placed.device.kind == kind]
        return sorted(devices, key=lambda placed: placed.number)


def format_ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: 1, 2, 3, 5 → "1-3, 5"."""
    ranges = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        ranges.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(ranges)
