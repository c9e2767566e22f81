"""How many switches of each tier, and how many links between every two of them."""

from dataclasses import dataclass
from typing import Literal

Tiers = Literal[0, 1, 2, 3]


@dataclass(frozen=True)
class Shape:
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
