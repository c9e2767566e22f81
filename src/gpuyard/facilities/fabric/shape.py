"""Search for the fat tree with the fewest switches that joins a number of endpoints.

The search tries every balanced shape, fewest switches first. In a balanced shape, every pair of connected switches has the
same number of links, so that traffic spreads evenly. NVIDIA's reference designs for the DGX SuperPOD are balanced too:
three scalable units use 16 spines, although 12 would have enough ports.
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

    Endpoints are split into `groups` (rails that share leaves), and each group is split by machines into `parts`.
    A pod is one part of one group. In two tiers, every leaf reaches every spine. In three tiers, the leaves of a
    pod reach the spines of the same pod, and the spines reach the cores: `planes` spines of each pod share one
    set of cores. All pairs of connected switches have the same number of links, called a bundle.
    """

    groups: int
    parts: int
    leaves_per_pod: int
    spines_per_pod: int  # in two tiers: the spines of the whole fabric
    leaf_spine_bundle: int
    planes: int = 1
    cores_per_plane: int = 0  # cores in each set
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
        return 1 if self.leaves_per_pod else 0  # 0: two machines cabled to each other

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
    """The ports of a leaf and of the switches above it."""

    leaf: int
    leaf_uplinks: int  # dedicated uplink ports; 0 if any port of a leaf may go up
    above: int
    uplink_speed: Fraction  # speed of an uplink as a multiple of a port's

    def fits_leaf(self, down: int, up: int) -> bool:
        if self.leaf_uplinks:
            return down <= self.leaf and up <= self.leaf_uplinks
        return down + up <= self.leaf


@dataclass(frozen=True)
class PortDemand:
    """The endpoints to join: each machine has `ports_per_node`, spread evenly over the rails."""

    nodes: int
    ports_per_node: int
    rails: int
    oversubscription: Fraction

    def count_uplinks(self, endpoints: int, speed: Fraction) -> int:
        """Return how many links up this number of endpoints needs."""
        return math.ceil(Fraction(endpoints) / self.oversubscription / speed)


def find_single_switch(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """Return a shape of one switch, or None if it has too few ports."""
    if demand.nodes * demand.ports_per_node > ports.leaf:
        return None
    return FabricShape(1, 1, 1, 0, 0)


def find_two_tiers(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """Return the shape with the fewest leaves and spines, or None if two tiers are not enough."""
    best: FabricShape | None = None
    for groups in _list_divisors(demand.rails):
        in_group = demand.nodes * demand.ports_per_node // groups
        for per_group in range(1, ports.above // groups + 1):
            leaves = groups * per_group
            if best is not None and leaves >= best.switches:
                break
            if groups < demand.rails and per_group > 1:
                break  # rails share a leaf only if each of them fits on it completely
            for shape in _add_spines(demand, ports, groups, per_group, in_group):
                best = _choose_better(best, shape)
    return best


def _add_spines(
    demand: PortDemand, ports: SwitchPorts, groups: int, per_group: int, in_group: int
) -> Iterator[FabricShape]:
    """Yield the shape with the fewest spines over these leaves, if there is one."""
    down = -(-in_group // per_group)
    up = demand.count_uplinks(down, ports.uplink_speed)
    if not ports.fits_leaf(down, up):
        return
    for spines in range(1, up + 1):
        bundle = -(-up // spines)
        fits = ports.fits_leaf(down, spines * bundle)
        if fits and groups * per_group * bundle <= ports.above:
            yield FabricShape(groups, 1, per_group, spines, bundle)
            return


def find_three_tiers(demand: PortDemand, ports: SwitchPorts) -> FabricShape | None:
    """Return the shape with the fewest leaves, spines, and cores, or None if three tiers are not enough.

    Only the cores connect the pods of different rails.
    """
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
            split = (demand.rails, parts)
            for shape in _add_spines_and_cores(demand, ports, split, leaves, in_pod, best=best):
                best = _choose_better(best, shape)
    return best


def _add_spines_and_cores(
    demand: PortDemand,
    ports: SwitchPorts,
    split: tuple[int, int],
    leaves: int,
    in_pod: int,
    *,
    best: FabricShape | None,
) -> Iterator[FabricShape]:
    down = -(-in_pod // leaves)
    up = demand.count_uplinks(down, ports.uplink_speed)
    if not ports.fits_leaf(down, up):
        return
    pods = split[0] * split[1]
    pod_up = demand.count_uplinks(in_pod, ports.uplink_speed)
    # the links to the cores may need more spines than the leaves' uplinks do
    for spines in range(1, (ports.leaf_uplinks or ports.leaf - down) + 1):
        if best is not None and pods * (leaves + spines) >= best.switches:
            return
        bundle = -(-up // spines)
        if not ports.fits_leaf(down, spines * bundle):
            continue
        spine_down = leaves * bundle
        spine_up = -(-pod_up // spines)
        if spine_down + spine_up > ports.above:
            continue
        cores = _find_fewest_cores(ports, pods, spines, spine_up, ports.above - spine_down)
        if cores is not None:
            yield FabricShape(*split, leaves, spines, bundle, *cores)


def _find_fewest_cores(
    ports: SwitchPorts, pods: int, spines: int, up: int, free_ports: int
) -> tuple[int, int, int] | None:
    """Return (planes, cores per set, links per bundle) with the fewest cores."""
    best: tuple[int, int, tuple[int, int, int]] | None = None
    for planes in _list_divisors(spines):
        for bundle in range(1, ports.above // (pods * planes) + 1):
            cores = -(-up // bundle)
            links = cores * bundle
            if links > free_ports:
                continue
            rank = (spines // planes * cores, links, (planes, cores, bundle))
            if best is None or rank < best:
                best = rank
    return None if best is None else best[2]


def _choose_better(best: FabricShape | None, other: FabricShape) -> FabricShape:
    if best is None or (other.switches, other.links) < (best.switches, best.links):
        return other
    return best


def _list_divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


# assumed: the share of a full director's price that pays for the bare chassis, its fans, and its supplies
_CHASSIS_SHARE = 0.25


@dataclass(frozen=True)
class DirectorBoards:
    """The boards in one director chassis."""

    leaf_boards: int
    spine_boards: int
    share: float  # of the boards of a full chassis

    @property
    def price_share(self) -> float:
        """The price as a share of the price of a full chassis."""
        return _CHASSIS_SHARE + (1 - _CHASSIS_SHARE) * self.share


def populate_chassis(
    switch: Switch, ports_used: int, oversubscription: Fraction = Fraction(1)
) -> DirectorBoards:
    """Choose leaf boards for the ports, and spine boards for the traffic of the fullest chip.

    Half of a leaf chip's ports face out. The backplane joins each chip to each spine board with the same number
    of links, so a chip needs spine boards for the ports that it uses. For example, 18 used ports on a 36-port chip
    with 3 links to each spine board need all 6 spine boards.
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
    return DirectorBoards(leaf_boards, spine_boards, share)
