"""How many switches of each tier, how many links between every two of them, and the fewest that join so many
endpoints: every balanced shape is tried, fewest first.

Balanced means that every two switches that are joined are joined by the same number of links, so that
traffic spreads evenly. The reference designs of the DGX SuperPOD are built like this: three scalable
units take 16 spines where 12 would have ports enough.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gpuyard.catalog.fabric import Switch
from gpuyard.errors import UserMistake

Tiers = Literal[0, 1, 2, 3]


@dataclass(frozen=True)
class FabricShape:
    """A balanced fat tree.

    Endpoints are split into `groups` (rails that share leaves) and these by machines into `parts`.
    A pod is one part of one group. In two tiers every leaf reaches every spine; in three tiers the
    leaves and spines of a pod reach each other, and the spines go on to the cores: `planes` spines of
    each pod share one set of cores. Between two switches that are joined runs a bundle, of the same
    number of links everywhere.
    """

    groups: int
    parts: int
    leaves_per_pod: int
    spines_per_pod: int  # of the whole fabric, in two tiers
    leaf_spine_bundle: int
    planes: int = 1
    cores_per_plane: int = 0  # in each set of cores
    spine_core_bundle: int = 0

    @property
    def pods(self) -> int:
        return self.groups * self.parts

    @property
    def tiers(self) -> Tiers:
        if self.cores_per_plane:
            return 3
        if self.spines_per_pod:
            return 2
        return 1 if self.leaves_per_pod else 0  # two machines that are cabled to each other

    @property
    def leaves(self) -> int:
        return self.pods * self.leaves_per_pod

    @property
    def spines(self) -> int:
        return self.spines_per_pod * (self.pods if self.tiers == 3 else 1)

    @property
    def cores(self) -> int:
        return self.core_sets * self.cores_per_plane

    @property
    def core_sets(self) -> int:
        return self.spines_per_pod // self.planes

    @property
    def uplinks_per_leaf(self) -> int:
        return self.spines_per_pod * self.leaf_spine_bundle

    @property
    def uplinks_per_spine(self) -> int:
        return self.cores_per_plane * self.spine_core_bundle

    @property
    def leaf_spine_links(self) -> int:
        return self.leaves * self.uplinks_per_leaf

    @property
    def spine_core_links(self) -> int:
        return self.spines * self.uplinks_per_spine

    @property
    def switches(self) -> int:
        return self.leaves + self.spines + self.cores

    @property
    def links(self) -> int:
        return self.leaf_spine_links + self.spine_core_links


@dataclass(frozen=True)
class SwitchPorts:
    """What a leaf and the switches above it offer. A leaf with uplinks of its own keeps them apart."""

    leaf: int
    leaf_uplinks: int  # 0: any port of a leaf may go up
    above: int
    uplink_speed: Fraction  # of an uplink, as a multiple of a port's

    def leaf_holds(self, down: int, up: int) -> bool:
        if self.leaf_uplinks:
            return down <= self.leaf and up <= self.leaf_uplinks
        return down + up <= self.leaf


@dataclass(frozen=True)
class PortDemand:
    """Endpoints to join: each machine has `ports_per_node`, spread evenly over the rails."""

    nodes: int
    ports_per_node: int
    rails: int
    oversubscription: Fraction

    def uplinks(self, endpoints: int, speed: Fraction) -> int:
        """Links up that so many endpoints below need."""
        return math.ceil(Fraction(endpoints) / self.oversubscription / speed)


def single(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """One switch, where it has ports enough."""
    if demand.nodes * demand.ports_per_node > ports.leaf:
        return None
    return FabricShape(1, 1, 1, 0, 0)


def two_tiers(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """The fewest leaves and spines; None where two tiers are not enough."""
    best: FabricShape | None = None
    for groups in _divisors(demand.rails):
        in_group = demand.nodes * demand.ports_per_node // groups
        for per_group in range(1, ports.above // groups + 1):
            leaves = groups * per_group
            if best is not None and leaves >= best.switches:
                break
            if groups < demand.rails and per_group > 1:
                break  # rails share a leaf only where each of them is whole on it
            for shape in _spines_over(demand, ports, groups, per_group, in_group):
                best = _better(best, shape)
    return best


def _spines_over(
    demand: PortDemand, ports: SwitchPorts, groups: int, per_group: int, in_group: int
) -> Iterator[FabricShape]:
    """The fewest spines over so many leaves."""
    down = -(-in_group // per_group)
    up = demand.uplinks(down, ports.uplink_speed)
    if not ports.leaf_holds(down, up):
        return
    for spines in range(1, up + 1):
        bundle = -(-up // spines)
        fits = ports.leaf_holds(down, spines * bundle)
        if fits and groups * per_group * bundle <= ports.above:
            yield FabricShape(groups, 1, per_group, spines, bundle)
            return


def three_tiers(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """The fewest leaves, spines and cores; a rail never leaves its pods but through the cores."""
    best: FabricShape | None = None
    for parts in range(1, min(demand.nodes, ports.above // demand.rails) + 1):
        pods = demand.rails * parts
        if pods == 1:
            continue
        if best is not None and 2 * pods >= best.switches:
            break
        in_pod = -(-demand.nodes // parts) * demand.ports_per_node // demand.rails
        for leaves in range(1, ports.above + 1):
            if best is not None and pods * (leaves + 1) >= best.switches:
                break
            for shape in _pods_of(demand, ports, (demand.rails, parts), leaves, in_pod, best=best):
                best = _better(best, shape)
    return best


def _pods_of(
    demand: PortDemand,
    ports: SwitchPorts,
    split: tuple[int, int],
    leaves: int,
    in_pod: int,
    *,
    best: FabricShape | None,
) -> Iterator[FabricShape]:
    down = -(-in_pod // leaves)
    up = demand.uplinks(down, ports.uplink_speed)
    if not ports.leaf_holds(down, up):
        return
    pods = split[0] * split[1]
    pod_up = demand.uplinks(in_pod, ports.uplink_speed)
    # more spines than the leaves need links up can still be what the links to the cores need
    for spines in range(1, (ports.leaf_uplinks or ports.leaf - down) + 1):
        if best is not None and pods * (leaves + spines) >= best.switches:
            return
        bundle = -(-up // spines)
        if not ports.leaf_holds(down, spines * bundle):
            continue
        spine_down = leaves * bundle
        spine_up = -(-pod_up // spines)
        if spine_down + spine_up > ports.above:
            continue
        cores = _cores_over(ports, pods, spines, spine_up, ports.above - spine_down)
        if cores is not None:
            yield FabricShape(*split, leaves, spines, bundle, *cores)


def _cores_over(
    ports: SwitchPorts, pods: int, spines: int, up: int, room: int
) -> tuple[int, int, int] | None:
    """How many planes share cores, cores of each set, and links in a bundle, for the fewest cores."""
    found: tuple[int, int, tuple[int, int, int]] | None = None
    for planes in _divisors(spines):
        for bundle in range(1, ports.above // (pods * planes) + 1):
            cores = -(-up // bundle)
            links = cores * bundle
            if links > room:
                continue
            rank = (spines // planes * cores, links, (planes, cores, bundle))
            if found is None or rank < found:
                found = rank
    return None if found is None else found[2]


def _better(one: FabricShape | None, other: FabricShape) -> FabricShape:
    if one is None or (other.switches, other.links) < (one.switches, one.links):
        return other
    return one


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


# an assumption: of a full director's price, what the bare chassis with its fans and supplies costs
_CHASSIS_SHARE = 0.25


@dataclass(frozen=True)
class Boards:
    """What sits in one chassis."""

    leaf_boards: int
    spine_boards: int
    share: float  # of the boards of a full one

    @property
    def price_share(self) -> float:
        """Of a full chassis's price."""
        return _CHASSIS_SHARE + (1 - _CHASSIS_SHARE) * self.share


def populate(switch: Switch, ports_used: int, oversubscription: Fraction = Fraction(1)) -> Boards:
    """Leaf boards for the ports, and spine boards for the traffic of the fullest chip.

    Half of a leaf chip's ports face out. The backplane joins each chip to each spine board with the
    same number of links, so a chip needs spines for the ports that it uses: 18 ports on a 36-port chip
    with 3 links to each spine board need all 6.
    """
    if not (
        switch.leaf_boards
        and switch.ports_per_leaf_board
        and switch.spine_boards
        and switch.chip_ports
    ):
        raise UserMistake(f"{switch.id} is not a director")
    half = switch.chip_ports // 2
    chips_per_board = switch.ports_per_leaf_board // half
    leaf_boards = max(1, math.ceil(ports_used / switch.ports_per_leaf_board))
    fullest = math.ceil(ports_used / (leaf_boards * chips_per_board))
    links_per_spine = Fraction(half, switch.spine_boards)
    spine_boards = max(1, math.ceil(fullest / oversubscription / links_per_spine))
    share = (leaf_boards + spine_boards) / (switch.leaf_boards + switch.spine_boards)
    return Boards(leaf_boards, spine_boards, share)
