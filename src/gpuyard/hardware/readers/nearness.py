"""How near devices are to each other on PCIe, as nested groups: what a matrix of link classes comes from.

In a tree the nearness of three devices is an ultrametric: of the three classes the two farthest are equal.
NVLink hides a pair's class; what it can be at most follows from the other pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # near to far
_UNKNOWN = len(LEVELS)

Pair = tuple[str, str]
Group = tuple[str, ...]


class Nearness:
    """The farthest that every pair can be, given the pairs that are known."""

    def __init__(self, devices: Sequence[str], known: Mapping[Pair, int]) -> None:
        self.devices = tuple(devices)
        self._known = dict(known)
        self._most = {(a, b): _UNKNOWN for a in devices for b in devices if a != b}
        for (a, b), level in known.items():
            self._most = self._closer(a, b, level)

    def most(self, a: str, b: str) -> int:
        return self._most[a, b]

    def suppose(self, a: str, b: str, level: int) -> int:
        """Take a hidden pair to be this near, or as near as the known pairs let it be; returns how near."""
        while level < self.most(a, b):
            closer = self._closer(a, b, level)
            if all(closer[pair] == self._most[pair] for pair in self._known):
                self._most = closer
                break
            level += 1
        return self.most(a, b)

    def levels(self) -> dict[Pair, int]:
        """Every pair: as it is known, else as far as it can be."""
        return {
            pair: self._known.get(pair, min(most, _UNKNOWN - 1))
            for pair, most in self._most.items()
        }

    def _closer(self, a: str, b: str, level: int) -> dict[Pair, int]:
        """All pairs after a and b have been brought this near: whoever is near one is near the other."""
        most = self._most
        to_a = {x: most.get((x, a), 0) for x in self.devices}
        to_b = {x: most.get((x, b), 0) for x in self.devices}
        return {
            (x, y): min(far, max(to_a[x], level, to_b[y]), max(to_b[x], level, to_a[y]))
            for (x, y), far in most.items()
        }


def group(devices: Sequence[str], levels: Mapping[Pair, int], level: int) -> list[Group]:
    """Devices in groups that are this near; where the pairs disagree, most of them decide.

    Groups of a nearer level are never cut apart.
    """
    groups: list[Group] = [(device,) for device in devices]
    for step in range(level + 1):
        while len(groups) > 1:
            a, b = max(combinations(groups, 2), key=_agreement(levels, step))
            if _agreement(levels, step)((a, b)) <= 0.5:
                break
            merged = tuple(device for device in devices if device in a or device in b)
            groups = [merged if g == a else g for g in groups if g != b]
    return groups


def _agreement(levels: Mapping[Pair, int], level: int) -> Callable[[tuple[Group, Group]], float]:
    def share(pair: tuple[Group, Group]) -> float:
        a, b = pair
        return sum(levels[x, y] <= level for x in a for y in b) / (len(a) * len(b))

    return share
