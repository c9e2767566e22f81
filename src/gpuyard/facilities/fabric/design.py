"""A designed fabric: its switches, cables, bandwidth, power, weight, and price."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gpuyard.catalog.fabric import Switch
from gpuyard.facilities.fabric.cabling import CableRun, Wiring, lay_cables
from gpuyard.facilities.fabric.request import FabricRequest, TypicalFloor
from gpuyard.facilities.fabric.shape import (
    DirectorBoards,
    FabricShape,
    find_single_switch,
    find_three_tiers,
    find_two_tiers,
    populate_chassis,
)
from gpuyard.specs import Network

_HOPS = {0: 0, 1: 1, 2: 3, 3: 5}
_DIRECT = FabricShape(1, 1, 0, 0, 0)
_DIRECTOR_HOPS = 3  # leaf chip, spine chip, leaf chip


@dataclass(frozen=True)
class FabricBill:
    """The totals of a fabric; None if the catalog lacks a value for a part. All prices are estimates."""

    switches_usd: float | None
    cables_usd: float
    cards_usd: float
    endpoints: int
    switch_watts: float | None
    cable_watts: float
    rack_units: float
    weight_kg: float | None

    @property
    def total_usd(self) -> float | None:
        if self.switches_usd is None:
            return None
        return self.switches_usd + self.cables_usd + self.cards_usd

    @property
    def usd_per_port(self) -> float | None:
        """The price of switches and cables per port of a machine."""
        if self.switches_usd is None:
            return None
        return (self.switches_usd + self.cables_usd) / self.endpoints


@dataclass(frozen=True)
class FabricDesign:
    """A fabric that joins all endpoints of a request."""

    request: FabricRequest
    shape: FabricShape
    switch: Switch  # the leaf, or the only switch
    spine_switch: Switch  # the switch of both upper tiers
    boards: DirectorBoards | None  # of the only switch, if it is a director
    spine_boards: DirectorBoards | None  # of each spine, if it is a director

    @cached_property
    def cables(self) -> tuple[CableRun, ...]:
        """All cables. They are computed on first use, because that takes longer than the rest of the design."""
        return lay_cables(
            self.wiring,
            self.request.floor or TypicalFloor.from_node_count(self.request.nodes),
            self.switch.port_gbit_per_second,
            self.switch.up_gbit_per_second,
        )

    @property
    def kind(self) -> str:
        if self.boards is not None:
            return "director"
        return {0: "direct", 1: "single-switch", 2: "leaf-spine", 3: "three-tier"}[self.shape.tiers]

    @property
    def switches(self) -> dict[str, int]:
        """The number of switches by tier; for a single director, the number of its boards."""
        if self.boards is not None:
            return {"leaf": self.boards.leaf_boards, "spine": self.boards.spine_boards, "core": 0}
        shape = self.shape
        return {"leaf": shape.leaves, "spine": shape.spines, "core": shape.cores}

    @property
    def chassis(self) -> dict[str, int]:
        """The number of chassis to put into racks, by switch id."""
        above = self.shape.spines + self.shape.cores
        if not self.shape.switches:
            return {}
        if self.spine_switch.id == self.switch.id:
            return {self.switch.id: self.shape.leaves + above}
        return {self.switch.id: self.shape.leaves} | (
            {self.spine_switch.id: above} if above else {}
        )

    @property
    def cable_counts(self) -> dict[str, int]:
        if not self.shape.switches:
            pairs = self.request.ports_per_node
            return {"node_node": pairs, "node_leaf": 0, "leaf_spine": 0, "spine_core": 0}
        return {
            "node_leaf": self.request.endpoints,
            "leaf_spine": self.shape.leaf_spine_links,
            "spine_core": self.shape.spine_core_links,
        }

    @cached_property
    def wiring(self) -> Wiring:
        return Wiring(self.request.demand, self.shape)

    @property
    def ports_total(self) -> int:
        if not self.shape.switches:
            return self.request.endpoints
        leaf = self.switch.ports + (self.switch.uplink_ports if self.shape.tiers > 1 else 0)
        above = (self.shape.spines + self.shape.cores) * self.spine_switch.ports
        return self.shape.leaves * leaf + above

    @property
    def ports_used(self) -> int:
        return self.request.endpoints + 2 * self.shape.links

    @property
    def ports_spare(self) -> int:
        return self.ports_total - self.ports_used

    @property
    def spare_leaf_ports(self) -> int:
        """The free leaf ports, into which more machines could be plugged."""
        if not self.shape.switches:
            return 0
        free = self.shape.leaves * self.switch.ports - self.request.endpoints
        return free if self.switch.uplink_ports else free - self.shape.leaf_spine_links

    @property
    def oversubscription(self) -> float:
        """The ratio as built, at least 1: bandwidth below the fullest leaf divided by the bandwidth above it."""
        shape, demand = self.shape, self.request.demand
        if self.boards is not None:
            return float(demand.oversubscription)
        if shape.tiers <= 1:
            return 1.0
        speed = self._uplink_speed
        in_pod = -(-demand.nodes // shape.parts) * demand.ports_per_node // shape.groups
        below = -(-in_pod // shape.leaves_per_pod)
        ratios = [Fraction(below) / (shape.uplinks_per_leaf * speed)]
        if shape.tiers == 3:
            ratios.append(
                Fraction(in_pod) / (shape.spines_per_pod * shape.uplinks_per_spine * speed)
            )
        return float(max(Fraction(1), *ratios))

    @property
    def _uplink_speed(self) -> Fraction:
        return Fraction(self.switch.up_gbit_per_second) / Fraction(self.switch.port_gbit_per_second)

    @property
    def bisection_bytes_per_second(self) -> float:
        """The bandwidth in one direction between two halves of the machines, for the worst split."""
        whole = self.request.endpoints * self.switch.port_bytes_per_second
        return whole / self.oversubscription / 2

    @property
    def hops(self) -> int:
        """The number of switches on the longest path; a director counts as three chips."""
        if self.boards is not None:
            return _DIRECTOR_HOPS
        inside = _DIRECTOR_HOPS - 1 if self.spine_boards is not None else 0
        return _HOPS[self.shape.tiers] + inside * (2 * self.shape.tiers - 3)

    @property
    def all_reduce_bytes_per_second(self) -> float:
        """The wire rate per machine in a ring that visits the machines in any order."""
        node = self.request.ports_per_node * self.switch.port_bytes_per_second
        return node / self.oversubscription

    @property
    def ordered_all_reduce_bytes_per_second(self) -> float:
        """The wire rate per machine in a ring that goes leaf by leaf, so that only its ends leave a leaf."""
        node = self.request.ports_per_node * self.switch.port_bytes_per_second
        if self.shape.tiers <= 1:
            return self.all_reduce_bytes_per_second
        # the ports of one node may be spread over several leaves
        on_a_leaf = -(-self.request.endpoints // self.shape.leaves)
        leaving = min(self.request.ports_per_node / self.shape.groups, on_a_leaf)
        up = self.shape.uplinks_per_leaf
        if self.shape.tiers == 3:
            up = min(up, self.shape.uplinks_per_spine * self.shape.spines_per_pod)
        return node * min(1.0, up * float(self._uplink_speed) / leaving)

    @cached_property
    def bill(self) -> FabricBill:
        parts = [
            (self.switch, self.shape.leaves, self.boards),
            (self.spine_switch, self.shape.spines + self.shape.cores, self.spine_boards),
        ]
        used = [(switch, count, boards) for switch, count, boards in parts if count]
        return FabricBill(
            switches_usd=_sum_known(
                [_price_switches(switch, boards, count) for switch, count, boards in used]
            ),
            cables_usd=sum(run.total_usd for run in self.cables),
            cards_usd=self.request.endpoints * self.switch.card_price_usd,
            endpoints=self.request.endpoints,
            switch_watts=_sum_known(
                [_multiply(switch.max_watts, count) for switch, count, _ in used]
            ),
            cable_watts=sum(run.count * run.watts for run in self.cables),
            rack_units=sum(switch.rack_units * count for switch, count, _ in used),
            weight_kg=_sum_known([_multiply(switch.weight_kg, count) for switch, count, _ in used]),
        )

    @property
    def network(self) -> Network:
        """The fabric as the `network` of a cluster file, which predictions use."""
        return Network(
            link=self.switch.link,
            rails=self.request.ports_per_node,
            oversubscription=self.oversubscription,
        )


def design_fabric(request: FabricRequest) -> FabricDesign:
    """Design the fabric with the fewest switches. Raises UserMistake if three tiers are not enough."""
    request.check()
    leaf, above = request.find_switches()
    demand, ports = request.demand, request.count_switch_ports()
    shape = _DIRECT if request.direct else find_single_switch(demand, ports)
    if shape is None and above is not None:
        shape = find_two_tiers(demand, ports) or find_three_tiers(demand, ports)
    if shape is None:
        raise request.explain_too_large()
    above = above or leaf
    alone = shape.tiers <= 1
    below_spine = shape.leaves_per_pod * shape.leaf_spine_bundle + shape.uplinks_per_spine
    if shape.tiers == 2:
        below_spine = shape.leaves * shape.leaf_spine_bundle
    return FabricDesign(
        request=request,
        shape=shape,
        switch=leaf,
        spine_switch=above,
        boards=(
            populate_chassis(leaf, request.endpoints, demand.oversubscription)
            if shape.tiers == 1 and leaf.director
            else None
        ),
        spine_boards=populate_chassis(above, below_spine) if above.director and not alone else None,
    )


def _price_switches(switch: Switch, boards: DirectorBoards | None, count: int) -> float | None:
    share = boards.price_share if boards is not None else 1.0
    return _multiply(switch.price_usd, count * share)


def _multiply(value: float | None, count: float) -> float | None:
    return None if value is None else value * count


def _sum_known(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None
