"""Every link of a fabric, one by one or bundle by bundle: which port meets which switch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard.facility.fabric.search import PortDemand
from gpuyard.facility.fabric.shape import Shape


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
    shape: Shape

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
