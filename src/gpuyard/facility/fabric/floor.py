"""A simple machine room: racks in rows, cables over a tray, and how long they come out."""

import math
from dataclasses import dataclass

_FEWEST_IN_A_ROW = 10


@dataclass(frozen=True)
class TypicalFloor:
    """Racks of machines in rows. The lengths are assumptions of a usual room: racks 0.6 m wide, rows
    3 m apart, 2 m of cable inside a rack, and 3.5 m up to the tray, down again and for slack."""

    nodes_per_rack: int = 4
    racks_per_row: int = 10
    rack_width_m: float = 0.6
    row_pitch_m: float = 3.0
    inside_rack_m: float = 2.0
    tray_m: float = 3.5

    @classmethod
    def of(
        cls, nodes: int, nodes_per_rack: int = 4, racks_per_row: int | None = None
    ) -> "TypicalFloor":
        """A floor for so many machines; rows of ten racks, of more where the floor is square then."""
        racks = math.ceil(nodes / nodes_per_rack)
        square = math.ceil(math.sqrt(racks * cls.row_pitch_m / cls.rack_width_m))
        return cls(nodes_per_rack, racks_per_row or max(_FEWEST_IN_A_ROW, square))

    def rack_of(self, node: int) -> int:
        return node // self.nodes_per_rack

    def length_m(self, rack: int, other: int) -> float:
        """Of a cable between two racks: along the row, and across the rows at their ends."""
        if rack == other:
            return self.inside_rack_m
        row, place = self._stands(rack)
        other_row, other_place = self._stands(other)
        along = abs(place - other_place) * self.rack_width_m
        return self.tray_m + along + abs(row - other_row) * self.row_pitch_m

    def _stands(self, rack: int) -> tuple[int, int]:
        """Row, and place in it: every other row is counted backwards, so that neighbours stay near."""
        row, place = divmod(rack, self.racks_per_row)
        return row, place if row % 2 == 0 else self.racks_per_row - 1 - place
