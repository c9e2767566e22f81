"""The fewest switches that join so many endpoints: every balanced shape is tried, fewest first.

Balanced means that every two switches that are joined are joined by the same number of links, so that
traffic spreads evenly. The reference designs of the DGX SuperPOD are built like this: three scalable
units take 16 spines where 12 would have ports enough.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.facility.fabric.shape import Shape


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


def single(demand: PortDemand, ports: SwitchPorts) -> Shape | None:
    """One switch, where it has ports enough."""
    if demand.nodes * demand.ports_per_node > ports.leaf:
        return None
    return Shape(1, 1, 1, 0, 0)


def two_tiers(demand: PortDemand, ports: SwitchPorts) -> Shape | None:
    """The fewest leaves and spines; None where two tiers are not enough."""
    best: Shape | None = None
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
) -> Iterator[Shape]:
    """The fewest spines over so many leaves."""
    down = -(-in_group // per_group)
    up = demand.uplinks(down, ports.uplink_speed)
    if not ports.leaf_holds(down, up):
        return
    for spines in range(1, up + 1):
        bundle = -(-up // spines)
        fits = ports.leaf_holds(down, spines * bundle)
        if fits and groups * per_group * bundle <= ports.above:
            yield Shape(groups, 1, per_group, spines, bundle)
            return


def three_tiers(demand: PortDemand, ports: SwitchPorts) -> Shape | None:
    """The fewest leaves, spines and cores; a rail never leaves its pods but through the cores."""
    best: Shape | None = None
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
    best: Shape | None,
) -> Iterator[Shape]:
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
            yield Shape(*split, leaves, spines, bundle, *cores)


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


def _better(one: Shape | None, other: Shape) -> Shape:
    if one is None or (other.switches, other.links) < (one.switches, one.links):
        return other
    return one


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
