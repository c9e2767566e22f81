"""Every link of a fabric, one by one or bundle by bundle: which port meets which switch."""

from bisect import bisect_right
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

    @cached_property
    def _part_starts(self) -> list[int]:
        # machines are split evenly: the first parts have one more
        parts = self.shape.parts
        return [part * self.demand.nodes // parts for part in range(parts + 1)]

    def leaf_of(self, node: int, port: int) -> int:
        """Where a machine's port is plugged in. Ports go round the rails; machines stay in order."""
        shape = self.shape
        rail = port % self.demand.rails
        group = rail * shape.groups // self.demand.rails
        part = bisect_right(self._part_starts, node) - 1
        first, last = self._part_starts[part], self._part_starts[part + 1]
        per_node = self.demand.ports_per_node // shape.groups
        slot = self._slot(port, group)
        index = (node - first) * per_node + slot
        in_pod = (last - first) * per_node
        pod = group * shape.parts + part
        return pod * shape.leaves_per_pod + index * shape.leaves_per_pod // in_pod

    def _slot(self, port: int, group: int) -> int:
        """The port's place among those of its machine that go to the same group."""
        rails_per_group = self.demand.rails // self.shape.groups
        rail = port % self.demand.rails
        return (port // self.demand.rails) * rails_per_group + rail - group * rails_per_group

    def leaf_table(self) -> npt.NDArray[np.int64]:
        """`leaf_of` for all at once: a row for each machine, a column for each of its ports."""
        shape, demand = self.shape, self.demand
        starts = np.array(self._part_starts)
        node = np.arange(demand.nodes)[:, None]
        port = np.arange(demand.ports_per_node)[None, :]
        part = np.searchsorted(starts, node, side="right") - 1
        first, last = starts[part], starts[part + 1]
        rail = port % demand.rails
        group = rail * shape.groups // demand.rails
        per_group = demand.rails // shape.groups
        slot = (port // demand.rails) * per_group + rail - group * per_group
        per_node = demand.ports_per_node // shape.groups
        index, in_pod = (node - first) * per_node + slot, (last - first) * per_node
        within = index * shape.leaves_per_pod // in_pod
        table: npt.NDArray[np.int64] = (
            (group * shape.parts + part) * shape.leaves_per_pod + within
        ).astype(np.int64)
        return table

    @cached_property
    def endpoints(self) -> tuple[tuple[int, int, int], ...]:
        """Machine, port, leaf."""
        return tuple(
            (node, port, leaf)
            for node, row in enumerate(self.leaf_table().tolist())
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
