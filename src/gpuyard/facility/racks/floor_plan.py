"""The racks in their rows, where in a rack each device sits, and how long the cables between them are."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from gpuyard.facility.device import RackDevice

RACK_WIDTH_M = 0.6
ROW_PITCH_M = 2.4
"""A rack 1.2 m deep and an aisle of 1.2 m."""
UNIT_M = 0.04445
_TRAY_M = 0.4  # from the top of a rack to the tray above it
_SLACK_M = 0.6  # both ends together


@dataclass(frozen=True)
class PlacedDevice:
    """A device in its rack; `unit` is its lowest, counted from 1 at the floor."""

    device: RackDevice
    number: int
    """Counts the devices of its kind over the whole room, from 1."""
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

    def distance_m(self, one: int, other: int) -> float:
        """Along the trays between two racks."""
        rows = abs(one // self.per_row - other // self.per_row)
        columns = abs(one % self.per_row - other % self.per_row)
        return columns * RACK_WIDTH_M + rows * ROW_PITCH_M

    def cable_m(self, one: PlacedDevice, other: PlacedDevice) -> float:
        """Between two devices: inside the rack, or up to the tray, along it, and down."""
        if one.rack == other.rack:
            return abs(one.unit - other.unit) * UNIT_M + _SLACK_M
        rise = sum((self.units - placed.unit) * UNIT_M + _TRAY_M for placed in (one, other))
        return rise + self.distance_m(one.rack, other.rack) + _SLACK_M


def number_list(numbers: Iterable[int]) -> str:
    """Racks by their numbers: 1, 2, 3, 5 → "1-3, 5"."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(runs)
