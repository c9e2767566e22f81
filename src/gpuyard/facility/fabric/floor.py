"""A simple machine room: racks in rows, cables over a tray, and how long they come out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """Racks of machines in rows. The lengths are assumptions of a usual room: racks 0.6 m wide, rows
    3 m apart, 2 m of cable inside a rack, and 3.5 m up to the tray, down again and for slack."""

    nodes_per_rack: int = 4
    racks_per_row: int = 10
    rack_width_m: float = 0.6
    row_pitch_m: float = 3.0
    inside_rack_m: float = 2.0
    tray_m: float = 3.5

    def rack_of(self, node: int) -> int:
        return node // self.nodes_per_rack

    def length_m(self, rack: int, other: int) -> float:
        """Of a cable between two racks: along the row, and across the rows at their ends."""
        if rack == other:
            return self.inside_rack_m
        row, place = divmod(rack, self.racks_per_row)
        other_row, other_place = divmod(other, self.racks_per_row)
        along = abs(place - other_place) * self.rack_width_m
        return self.tray_m + along + abs(row - other_row) * self.row_pitch_m
