"""Every link of a fabric, one by one or bundle by bundle, and its cables: how long each is on the floor, of
which kind, and what it costs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.catalog.fabric import Cable, cables
from gpuyard.errors import UserMistake
from gpuyard.facility.fabric.request import TypicalFloor
from gpuyard.facility.fabric.shape import FabricShape, PortDemand


@dataclass(frozen=True)
class Bundle:
    """Links between two switches, counted in their tiers."""

    lower: int
    upper: int
    links: int


@dataclass(frozen=True)
class Wiring:
    """Numbers for every switch: leaves by pod, then within it; spines the same; cores by set."""

    demand: PortDemand
    shape: FabricShape

    def leaf_of(self, node: int, port: int) -> int:
        """Where a machine's port is plugged in."""
        return int(self.leaf_table[node, port])

    @cached_property
    def leaf_table(self) -> npt.NDArray[np.int64]:
        """The leaf of each port: a row for each machine, a column for each of its ports. Ports go round the
        rails; machines stay in order."""
        shape, demand = self.shape, self.demand
        # machines are split evenly: the first parts have one more
        starts = np.arange(shape.parts + 1) * demand.nodes // shape.parts
        node = np.arange(demand.nodes)[:, None]
        port = np.arange(demand.ports_per_node)[None, :]
        part = np.searchsorted(starts, node, side="right") - 1
        first, last = starts[part], starts[part + 1]
        rail = port % demand.rails
        group = rail * shape.groups // demand.rails
        rails_per_group = demand.rails // shape.groups
        # the port's place among those of its machine that go to the same group
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
        """Machine, port, leaf; none where no port meets a leaf."""
        if not self.shape.leaves:
            return ()
        return tuple(
            (node, port, leaf)
            for node, row in enumerate(self.leaf_table.tolist())
            for port, leaf in enumerate(row)
        )

    def leaf_spine(self) -> Iterator[Bundle]:
        shape = self.shape
        for leaf in range(shape.leaves):
            first = leaf // shape.leaves_per_pod * shape.spines_per_pod if shape.tiers == 3 else 0
            for spine in range(shape.spines_per_pod):
                yield Bundle(leaf, first + spine, shape.leaf_spine_bundle)

    def spine_core(self) -> Iterator[Bundle]:
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
    """Cables that are alike: between which tiers, of which kind and length, how many."""

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
    """The rack that each leaf stands in, amid its machines; the spines of each pod; and all cores.

    In two tiers there is one place for the spines.
    """

    leaves: npt.NDArray[np.int64]
    spines: npt.NDArray[np.int64]
    cores: int


def place_switches(wiring: Wiring, floor: TypicalFloor) -> SwitchRacks:
    """Where cables come out short."""
    shape, nodes = wiring.shape, wiring.demand.nodes
    table = wiring.leaf_table
    node = np.broadcast_to(np.arange(nodes)[:, None], table.shape)
    # the machines of a leaf are neighbours: the middle one is halfway between first and last
    first, last = np.full(shape.leaves, nodes - 1), np.zeros(shape.leaves, dtype=np.int64)
    np.minimum.at(first, table.ravel(), node.ravel())
    np.maximum.at(last, table.ravel(), node.ravel())
    leaves = (first + last) // 2 // floor.nodes_per_rack
    middle = floor.rack_of(nodes - 1) // 2
    if shape.tiers < 3:
        return SwitchRacks(leaves, np.array([middle]), middle)
    return SwitchRacks(
        leaves, np.sort(leaves.reshape(shape.pods, -1))[:, (shape.leaves_per_pod - 1) // 2], middle
    )


def lay_cables(
    wiring: Wiring, floor: TypicalFloor, port_gbit: float, uplink_gbit: float
) -> tuple[CableRun, ...]:
    """All cables, those that are alike together."""
    shape = wiring.shape
    if not shape.leaves:
        apart = floor.length_m(floor.rack_of(0), floor.rack_of(1))
        cables = Counter({apart: wiring.demand.ports_per_node})
        return tuple(_runs("node", "node", cables, port_gbit))
    racks = place_switches(wiring, floor)
    table = wiring.leaf_table
    own = np.broadcast_to((np.arange(len(table)) // floor.nodes_per_rack)[:, None], table.shape)
    over = np.resize(np.repeat(racks.spines, shape.leaves // len(racks.spines)), shape.leaves)
    down = _lengths(floor, own.ravel(), racks.leaves[table.ravel()], 1)
    up = _lengths(floor, racks.leaves, over, shape.uplinks_per_leaf)
    top = _lengths(
        floor,
        racks.spines,
        np.full(len(racks.spines), racks.cores),
        shape.spines_per_pod * shape.uplinks_per_spine,
    )
    return (
        *_runs("node", "leaf", down, port_gbit),
        *_runs("leaf", "spine", up, uplink_gbit),
        *_runs("spine", "core", top, uplink_gbit),
    )


def _lengths(
    floor: TypicalFloor, racks: npt.NDArray[np.int64], others: npt.NDArray[np.int64], links: int
) -> Counter[float]:
    """How many cables are how long, with so many links between each two."""
    lengths: Counter[float] = Counter()
    if links == 0:
        return lengths
    pairs, counts = np.unique(np.stack([racks, others]), axis=1, return_counts=True)
    for rack, other, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        lengths[floor.length_m(rack, other)] += count * links
    return lengths


def _runs(lower: Tier, upper: Tier, lengths: Counter[float], gbit: float) -> Iterable[CableRun]:
    for cable, length_m, count in sold_cables(lengths, gbit):
        cost = round(cable.cost_usd(length_m), 2)
        yield CableRun(lower, upper, cable.id, cable.kind, length_m, count, cable.watts, cost)


def sold_cables(lengths: Counter[float], gbit: float) -> Iterator[tuple[Cable, float, int]]:
    """What to order for so many metres so many times: the cable, its length as sold, how many."""
    sold: Counter[tuple[float, str]] = Counter()
    for needed_m, count in lengths.items():
        cable = choose_cable(gbit, needed_m)
        sold[cable.sold_length_m(needed_m), cable.id] += count
    for (length_m, name), count in sorted(sold.items()):
        yield cables().get(name), length_m, count


def choose_cable(gbit_per_second: float, needed_m: float) -> Cable:
    """The cheapest cable that is long enough: copper while it reaches, then light."""
    of_rate = [cable for cable in cables() if cable.gbit_per_second == gbit_per_second]
    reaching = [cable for cable in of_rate if cable.reach_m >= needed_m]
    if not reaching:
        longest = max((cable.reach_m for cable in of_rate), default=0.0)
        raise UserMistake(
            f"a cable of {needed_m:.0f} m at {gbit_per_second:g} Gbit/s is needed and the longest in the "
            f"catalog is {longest:g} m: put more machines in a rack, or more racks in a row"
        )
    return min(reaching, key=lambda cable: cable.cost_usd(cable.sold_length_m(needed_m)))
