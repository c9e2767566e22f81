"""The links of a fabric and their cables: the length of each on the floor, its kind, and its cost."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.catalog.fabric import Cable, cables
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric.request import TypicalFloor
from gpuyard.facilities.fabric.shape import FabricShape, PortDemand


@dataclass(frozen=True)
class Bundle:
    """The links between two switches, each numbered within its tier."""

    lower: int
    upper: int
    links: int


@dataclass(frozen=True)
class Wiring:
    """The links of a fabric. Leaves and spines are numbered pod by pod, and cores set by set."""

    demand: PortDemand
    shape: FabricShape

    def find_leaf(self, node: int, port: int) -> int:
        """Return the leaf that a machine's port is plugged into."""
        return int(self.leaf_table[node, port])

    @cached_property
    def leaf_table(self) -> npt.NDArray[np.int64]:
        """The leaf of each port: one row per machine and one column per port.

        Consecutive ports go to consecutive rails; machines stay in order.
        """
        shape, demand = self.shape, self.demand
        # machines are split as evenly as possible over the parts
        starts = np.arange(shape.parts + 1) * demand.nodes // shape.parts
        node = np.arange(demand.nodes)[:, None]
        port = np.arange(demand.ports_per_node)[None, :]
        part = np.searchsorted(starts, node, side="right") - 1
        first, last = starts[part], starts[part + 1]
        rail = port % demand.rails
        group = rail * shape.groups // demand.rails
        rails_per_group = demand.rails // shape.groups
        # the port's position among the ports of its machine that go to the same group
        slot = (port // demand.rails) * rails_per_group + rail - group * rails_per_group
        per_node = demand.ports_per_node // shape.groups
        index, in_pod = (node - first) * per_node + slot, (last - first) * per_node
        pod = group * shape.parts + part
        table: npt.NDArray[np.int64] = (
            pod * shape.leaves_per_pod + index * shape.leaves_per_pod // in_pod
        )
        return table

    @cached_property
    def endpoints(self) -> tuple[tuple[int, int, int], ...]:
        """(machine, port, leaf) for each port; empty if the fabric has no leaves."""
        if not self.shape.leaves:
            return ()
        return tuple(
            (node, port, leaf)
            for node, row in enumerate(self.leaf_table.tolist())
            for port, leaf in enumerate(row)
        )

    def iter_leaf_spine(self) -> Iterator[Bundle]:
        shape = self.shape
        for leaf in range(shape.leaves):
            first = leaf // shape.leaves_per_pod * shape.spines_per_pod if shape.tiers == 3 else 0
            for spine in range(shape.spines_per_pod):
                yield Bundle(leaf, first + spine, shape.leaf_spine_bundle)

    def iter_spine_core(self) -> Iterator[Bundle]:
        shape = self.shape
        if shape.tiers < 3:
            return
        for spine in range(shape.spines):
            first = spine % shape.spines_per_pod // shape.planes * shape.cores_per_plane
            for core in range(shape.cores_per_plane):
                yield Bundle(spine, first + core, shape.spine_core_bundle)


Tier = Literal["node", "leaf", "spine", "core"]


@dataclass(frozen=True)
class CableRun:
    """Identical cables between two tiers."""

    from_tier: Tier
    to_tier: Tier
    cable: str
    kind: str
    length_m: float
    count: int
    watts: float
    price_usd: float

    @property
    def total_usd(self) -> float:
        return self.count * self.price_usd


@dataclass(frozen=True)
class SwitchRacks:
    """The rack of each leaf, of the spines of each pod, and of all cores.

    In two tiers, all spines are in one rack.
    """

    leaves: npt.NDArray[np.int64]
    spines: npt.NDArray[np.int64]
    cores: int


def place_switches(wiring: Wiring, floor: TypicalFloor) -> SwitchRacks:
    """Put each leaf in the middle of its machines, and the upper tiers in the middle of their leaves."""
    shape, nodes = wiring.shape, wiring.demand.nodes
    table = wiring.leaf_table
    node = np.broadcast_to(np.arange(nodes)[:, None], table.shape)
    # the machines of a leaf are consecutive, so the middle one is halfway between the first and the last
    first, last = np.full(shape.leaves, nodes - 1), np.zeros(shape.leaves, dtype=np.int64)
    np.minimum.at(first, table.ravel(), node.ravel())
    np.maximum.at(last, table.ravel(), node.ravel())
    leaves = (first + last) // 2 // floor.nodes_per_rack
    middle = floor.find_rack(nodes - 1) // 2
    if shape.tiers < 3:
        return SwitchRacks(leaves, np.array([middle]), middle)
    return SwitchRacks(
        leaves, np.sort(leaves.reshape(shape.pods, -1))[:, (shape.leaves_per_pod - 1) // 2], middle
    )


def lay_cables(
    wiring: Wiring, floor: TypicalFloor, port_gbit: float, uplink_gbit: float
) -> tuple[CableRun, ...]:
    """Return all cables of a fabric, with identical cables in one run."""
    shape = wiring.shape
    if not shape.leaves:
        length_m = floor.measure_cable_m(floor.find_rack(0), floor.find_rack(1))
        lengths = Counter({length_m: wiring.demand.ports_per_node})
        return tuple(_list_runs("node", "node", lengths, port_gbit))
    racks = place_switches(wiring, floor)
    table = wiring.leaf_table
    node_racks = np.broadcast_to(
        (np.arange(len(table)) // floor.nodes_per_rack)[:, None], table.shape
    )
    spine_racks = np.resize(
        np.repeat(racks.spines, shape.leaves // len(racks.spines)), shape.leaves
    )
    down = _count_lengths(floor, node_racks.ravel(), racks.leaves[table.ravel()], 1)
    up = _count_lengths(floor, racks.leaves, spine_racks, shape.uplinks_per_leaf)
    top = _count_lengths(
        floor,
        racks.spines,
        np.full(len(racks.spines), racks.cores),
        shape.spines_per_pod * shape.uplinks_per_spine,
    )
    return (
        *_list_runs("node", "leaf", down, port_gbit),
        *_list_runs("leaf", "spine", up, uplink_gbit),
        *_list_runs("spine", "core", top, uplink_gbit),
    )


def _count_lengths(
    floor: TypicalFloor, racks: npt.NDArray[np.int64], others: npt.NDArray[np.int64], links: int
) -> Counter[float]:
    """Count cables by length, for pairs of racks with this number of links each."""
    lengths: Counter[float] = Counter()
    if links == 0:
        return lengths
    pairs, counts = np.unique(np.stack([racks, others]), axis=1, return_counts=True)
    for rack, other, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        lengths[floor.measure_cable_m(rack, other)] += count * links
    return lengths


def _list_runs(
    lower: Tier, upper: Tier, lengths: Counter[float], gbit: float
) -> Iterable[CableRun]:
    for cable, length_m, count in choose_cables(lengths, gbit):
        cost = round(cable.cost_usd(length_m), 2)
        yield CableRun(lower, upper, cable.id, cable.kind, length_m, count, cable.watts, cost)


def choose_cables(lengths: Counter[float], gbit: float) -> Iterator[tuple[Cable, float, int]]:
    """Yield what to order for these counts of lengths: (cable, length as sold, count)."""
    orders: Counter[tuple[float, str]] = Counter()
    for needed_m, count in lengths.items():
        cable = choose_cable(gbit, needed_m)
        orders[cable.choose_length_m(needed_m), cable.id] += count
    for (length_m, name), count in sorted(orders.items()):
        yield cables().get(name), length_m, count


def choose_cable(gbit_per_second: float, needed_m: float) -> Cable:
    """Return the cheapest cable that is long enough: copper for short distances, optical for longer ones."""
    same_rate = [cable for cable in cables() if cable.gbit_per_second == gbit_per_second]
    long_enough = [cable for cable in same_rate if cable.reach_m >= needed_m]
    if not long_enough:
        longest = max((cable.reach_m for cable in same_rate), default=0.0)
        raise UserMistake(
            f"the fabric needs a cable of {needed_m:.0f} m at {gbit_per_second:g} Gbit/s, but the longest in the "
            f"catalog is {longest:g} m; put more machines in a rack, or more racks in a row"
        )
    return min(long_enough, key=lambda cable: cable.cost_usd(cable.choose_length_m(needed_m)))
