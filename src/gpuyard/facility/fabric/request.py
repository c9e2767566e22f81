"""What is asked of a fabric, checked before anything is designed, and a simple machine room for it: racks in
rows, cables over a tray, and how long they come out."""

import math
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import UserMistake
from gpuyard.facility.fabric.shape import PortDemand, SwitchPorts

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


MOST_ENDPOINTS = 200_000


@dataclass(frozen=True)
class FabricRequest:
    """So many machines with so many ports each, on one kind of switch. `spine` names another switch
    for the upper tiers; `rails` above 1 asks that port i of every machine meets the others' port i.
    Two machines may be cabled to each other: then the switch only says what kind of ports they have."""

    nodes: int
    ports_per_node: int
    switch: str
    rails: int = 1
    oversubscription: float = 1.0
    spine: str | None = None
    floor: TypicalFloor | None = None  # one of the machines' own size
    direct: bool = False  # no switch

    @property
    def endpoints(self) -> int:
        return self.nodes * self.ports_per_node

    @property
    def demand(self) -> PortDemand:
        ratio = Fraction(self.oversubscription).limit_denominator(1000)
        return PortDemand(self.nodes, self.ports_per_node, self.rails, ratio)

    def switches(self) -> tuple[Switch, Switch | None]:
        """The leaf, and what stands above it; None where the leaf's uplinks fit no switch of its own kind."""
        leaf = switches().get(self.switch)
        if self.spine is None:
            return leaf, None if leaf.uplink_ports else leaf
        above = switches().get(self.spine)
        if above.port_gbit_per_second != leaf.up_gbit_per_second:
            raise UserMistake(
                f"the uplinks of {leaf.id} run at {leaf.up_gbit_per_second:g} Gbit/s and the ports of {above.id} at "
                f"{above.port_gbit_per_second:g}; {_allowed_spines(leaf)}"
            )
        if above.kind != leaf.kind:
            raise UserMistake(f"{leaf.id} is {leaf.kind} and {above.id} is {above.kind}")
        return leaf, above

    def ports(self) -> SwitchPorts:
        leaf, above = self.switches()
        speed = Fraction(leaf.up_gbit_per_second) / Fraction(leaf.port_gbit_per_second)
        return SwitchPorts(leaf.ports, leaf.uplink_ports, above.ports if above else 0, speed)

    def check(self) -> None:
        """Raise the sentence that says what is wrong."""
        if self.nodes < 1 or self.ports_per_node < 1:
            raise UserMistake("a fabric joins at least one machine with at least one port")
        if self.endpoints > MOST_ENDPOINTS:
            raise UserMistake(
                f"{self.endpoints:,} ports are too many: up to {MOST_ENDPOINTS:,} are supported"
            )
        if self.rails < 1 or self.ports_per_node % self.rails:
            allowed = [
                str(d) for d in range(1, self.ports_per_node + 1) if not self.ports_per_node % d
            ]
            raise UserMistake(
                f"{self.ports_per_node} ports of a machine can't be spread evenly over {self.rails} "
                f"rails; --rails may be {', '.join(allowed)}"
            )
        if self.direct and self.nodes != 2:
            raise UserMistake(f"cables alone join two machines, not {self.nodes}: name a switch")
        if not 1 <= self.oversubscription <= 1000:
            raise UserMistake(
                f"an oversubscription of {self.oversubscription:g} is not possible: "
                "1 is non-blocking, 2 gives half the bandwidth above the leaves"
            )

    def beyond(self) -> UserMistake:
        """Why no fabric of up to three tiers does it."""
        leaf, above = self.switches()
        if above is None:
            return UserMistake(
                f"{self.endpoints:,} ports don't fit on one {leaf.id}, which has {leaf.ports}; "
                f"{_allowed_spines(leaf)}"
            )
        rails = f" in {self.rails} rails" if self.rails > 1 else ""
        return UserMistake(
            f"three tiers of {leaf.id} can't join {self.endpoints:,} ports{rails} at an "
            f"oversubscription of {self.oversubscription:g}; take a switch with more ports, fewer "
            "ports per machine, or more oversubscription"
        )


def spines_for(leaf: Switch) -> list[str]:
    """Switches whose ports take a leaf's uplinks."""
    return [
        other.id
        for other in switches()
        if other.port_gbit_per_second == leaf.up_gbit_per_second
        and other.kind == leaf.kind
        and not other.uplink_ports
    ]


def _allowed_spines(leaf: Switch) -> str:
    fitting = spines_for(leaf)
    if not fitting:
        return "no switch of the catalog takes its uplinks"
    return f"for its upper tiers --spine may be {', '.join(fitting)}"
