"""How near devices are to each other on PCIe, as nested groups: what a matrix of link classes comes from.

In a tree the nearness of three devices is an ultrametric: of the three classes the two farthest are equal.
NVLink hides a pair's class; what it can be at most follows from the other pairs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # near to far
_UNKNOWN = len(LEVELS)

Pair = tuple[str, str]
Group = tuple[str, ...]
Square = npt.NDArray[np.int8]


class Nearness:
    """The farthest that every pair can be, given the pairs that are known."""

    def __init__(self, devices: Sequence[str], known: Mapping[Pair, int]) -> None:
        self.devices = tuple(devices)
        self._at = {device: i for i, device in enumerate(self.devices)}
        self._known = np.full((len(self.devices),) * 2, _UNKNOWN, dtype=np.int8)
        for (a, b), level in known.items():
            self._known[self._at[a], self._at[b]] = level
        most = np.minimum(self._known, self._known.T)
        np.fill_diagonal(most, 0)
        for between in range(len(self.devices)):  # whoever is near one is near the other
            most = np.minimum(most, np.maximum.outer(most[:, between], most[between]))
        self._most: Square = most

    def most(self, a: str, b: str) -> int:
        return int(self._most[self._at[a], self._at[b]])

    def suppose(self, a: str, b: str, level: int) -> int:
        """Take a hidden pair to be this near, or as near as the known pairs let it be; returns how near."""
        known = self._known < _UNKNOWN
        while level < self.most(a, b):
            closer = self._closer(a, b, level)
            if (closer[known] == self._most[known]).all():
                self._most = closer
                break
            level += 1
        return self.most(a, b)

    def levels(self) -> dict[Pair, int]:
        """Every pair: as it is known, else as far as it can be."""
        farthest = np.minimum(self._most, _UNKNOWN - 1)
        found = np.where(self._known < _UNKNOWN, self._known, farthest).tolist()
        return {
            (a, b): found[i][j]
            for i, a in enumerate(self.devices)
            for j, b in enumerate(self.devices)
            if i != j
        }

    def _closer(self, a: str, b: str, level: int) -> Square:
        """All pairs after a and b have been brought this near."""
        to_a, to_b = self._most[:, self._at[a]], self._most[:, self._at[b]]
        through = np.maximum(np.maximum.outer(to_a, to_b), np.int8(level))
        return np.minimum(self._most, np.minimum(through, through.T))


def group(devices: Sequence[str], levels: Mapping[Pair, int], level: int) -> list[Group]:
    """Devices in groups that are this near; where the pairs disagree, most of them decide.

    Groups of a nearer level are never cut apart.
    """
    count = len(devices)
    far = np.array([[levels.get((a, b), 0) for b in devices] for a in devices]).reshape(
        count, count
    )
    members = np.eye(count, dtype=np.int64)  # one row a group, one column a device
    for step in range(level + 1):
        near = (far <= step).astype(np.int64)
        while len(members) > 1:
            sizes = members.sum(axis=1)
            agreeing = np.triu(members @ near @ members.T / np.outer(sizes, sizes), k=1)
            a, b = divmod(int(np.argmax(agreeing)), len(members))
            if agreeing[a, b] <= 0.5:
                break
            members[a] += members[b]
            members = np.delete(members, b, axis=0)
    return [
        tuple(device for device, inside in zip(devices, row, strict=True) if inside)
        for row in members
    ]
