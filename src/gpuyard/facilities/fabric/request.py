"""The request for a fabric, its validation, and a simple floor plan that gives the lengths of its cables."""

import math
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric.shape import PortDemand, SwitchPorts

MAX_ENDPOINTS = 200_000
_MIN_RACKS_PER_ROW = 10


@dataclass(frozen=True)
class TypicalFloor:
    """Racks of machines in rows, with the assumed lengths of a typical room.

    Racks are 0.6 m wide and rows are 3 m apart. A cable needs 2 m inside a rack. Between racks it needs 3.5 m
    up to the tray, down again, and for slack.
    """

    nodes_per_rack: int = 4
    racks_per_row: int = 10
    rack_width_m: float = 0.6
    row_pitch_m: float = 3.0
    inside_rack_m: float = 2.0
    tray_m: float = 3.5

    @classmethod
    def from_node_count(
        cls, nodes: int, nodes_per_rack: int = 4, racks_per_row: int | None = None
    ) -> "TypicalFloor":
        """Return a floor with rows of ten racks, or longer rows if that makes a large floor square."""
        racks = math.ceil(nodes / nodes_per_rack)
        square = math.ceil(math.sqrt(racks * cls.row_pitch_m / cls.rack_width_m))
        return cls(nodes_per_rack, racks_per_row or max(_MIN_RACKS_PER_ROW, square))

    def find_rack(self, node: int) -> int:
        return node // self.nodes_per_rack

    def measure_cable_m(self, rack: int, other: int) -> float:
        """Return the length of a cable between two racks: along the row, and across rows at their ends."""
        if rack == other:
            return self.inside_rack_m
        row, place = self._find_place(rack)
        other_row, other_place = self._find_place(other)
        along = abs(place - other_place) * self.rack_width_m
        return self.tray_m + along + abs(row - other_row) * self.row_pitch_m

    def _find_place(self, rack: int) -> tuple[int, int]:
        """Return (row, place in it). Every other row counts backward, so that consecutive racks stay close."""
        row, place = divmod(rack, self.racks_per_row)
        return row, place if row % 2 == 0 else self.racks_per_row - 1 - place


@dataclass(frozen=True)
class FabricRequest:
    """A number of machines with equal ports, to be joined by one switch model.

    `spine` names another switch for the upper tiers. With `rails` above 1, port i of every machine meets port i of
    the others. Two machines may be cabled directly to each other: then `switch` only sets the kind of their ports.
    """

    nodes: int
    ports_per_node: int
    switch: str
    rails: int = 1
    oversubscription: float = 1.0
    spine: str | None = None
    floor: TypicalFloor | None = None  # None: a floor sized for the machines
    direct: bool = False  # cables without a switch

    @property
    def endpoints(self) -> int:
        return self.nodes * self.ports_per_node

    @property
    def demand(self) -> PortDemand:
        ratio = Fraction(self.oversubscription).limit_denominator(1000)
        return PortDemand(self.nodes, self.ports_per_node, self.rails, ratio)

    def find_switches(self) -> tuple[Switch, Switch | None]:
        """Return (leaf, spine). The spine is None if the leaf has dedicated uplinks and no spine is named."""
        leaf = switches().get(self.switch)
        if self.spine is None:
            return leaf, None if leaf.uplink_ports else leaf
        above = switches().get(self.spine)
        if above.port_gbit_per_second != leaf.up_gbit_per_second:
            raise UserMistake(
                f"the uplinks of {leaf.id} run at {leaf.up_gbit_per_second:g} Gbit/s, but the ports of {above.id} run at "
                f"{above.port_gbit_per_second:g} Gbit/s; {_describe_spines(leaf)}"
            )
        if above.kind != leaf.kind:
            raise UserMistake(
                f"{leaf.id} is {leaf.kind}, but {above.id} is {above.kind}; {_describe_spines(leaf)}"
            )
        return leaf, above

    def count_switch_ports(self) -> SwitchPorts:
        leaf, above = self.find_switches()
        speed = Fraction(leaf.up_gbit_per_second) / Fraction(leaf.port_gbit_per_second)
        return SwitchPorts(leaf.ports, leaf.uplink_ports, above.ports if above else 0, speed)

    def check(self) -> None:
        """Raise UserMistake if the request contradicts itself."""
        if self.nodes < 1 or self.ports_per_node < 1:
            raise UserMistake("a fabric needs at least one machine with at least one port")
        if self.endpoints > MAX_ENDPOINTS:
            raise UserMistake(
                f"{self.endpoints:,} ports are too many: up to {MAX_ENDPOINTS:,} are supported"
            )
        if self.rails < 1 or self.ports_per_node % self.rails:
            allowed = [
                str(d) for d in range(1, self.ports_per_node + 1) if not self.ports_per_node % d
            ]
            raise UserMistake(
                f"the {self.ports_per_node} ports of a machine cannot be spread evenly over {self.rails} "
                f"rails; --rails may be {', '.join(allowed)}"
            )
        if self.direct and self.nodes != 2:
            raise UserMistake(f"cables alone join two machines, not {self.nodes}; name a switch")
        if not 1 <= self.oversubscription <= 1000:
            raise UserMistake(
                f"oversubscription must be between 1 and 1000, not {self.oversubscription:g}: "
                "1 is non-blocking, and 2 gives half the bandwidth above the leaves"
            )

    def explain_too_large(self) -> UserMistake:
        """Return the error for a request that no fabric of up to three tiers can satisfy."""
        leaf, above = self.find_switches()
        if above is None:
            return UserMistake(
                f"{self.endpoints:,} ports don't fit on one {leaf.id}, which has {leaf.ports}; "
                f"{_describe_spines(leaf)}"
            )
        rails = f" in {self.rails} rails" if self.rails > 1 else ""
        return UserMistake(
            f"three tiers of {leaf.id} cannot join {self.endpoints:,} ports{rails} at an "
            f"oversubscription of {self.oversubscription:g}; use a switch with more ports, fewer "
            "ports per machine, or more oversubscription"
        )


def find_spines(leaf: Switch) -> list[str]:
    """Return the ids of the switches whose ports match a leaf's uplinks."""
    return [
        other.id
        for other in switches()
        if other.port_gbit_per_second == leaf.up_gbit_per_second
        and other.kind == leaf.kind
        and not other.uplink_ports
    ]


def _describe_spines(leaf: Switch) -> str:
    spines = find_spines(leaf)
    if not spines:
        return "no switch in the catalog matches its uplinks"
    return f"for its upper tiers, --spine may be {', '.join(spines)}"
