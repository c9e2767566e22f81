"""A device in a rack, as racks and circuits see it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "server",
    "storage",
    "leaf",
    "spine",
    "core",
    "storage leaf",
    "storage spine",
    "storage core",
    "management",
    "management spine",
    "management core",
]
"""The kinds of devices; each switch belongs to one tier of the machine, storage, or management network."""
HOSTS: frozenset[str] = frozenset({"server", "storage"})


@dataclass(frozen=True)
class RackDevice:
    """A server, storage server, or switch. Watts are measured at the wall."""

    kind: Kind
    name: str
    rack_units: int
    depth_mm: float
    weight_kg: float
    typical_watts: float
    peak_watts: float
    supplies: int
    supplies_needed: int
    """Power supplies that full speed needs."""
    supplies_minimum: int
    """Power supplies without which the device turns off."""
    inlet: str
    volts_minimum: float = 100.0
    tower: bool = False
    noise_dba: float | None = None
    price_usd: float | None = None
    price_date: str = ""
    basis: str = ""
    part: str = ""

    @property
    def is_switch(self) -> bool:
        return self.kind not in HOSTS

    def count_cords(self, feed: int, feeds: int) -> int:
        """Return the number of supplies on this feed: an equal split, with an odd supply on the first feed."""
        return (self.supplies + feeds - 1 - feed) // feeds

    def cord_watts(self, feed: int, feeds: int) -> float:
        """Return the highest sustained load of each cord on this feed.

        If the device survives the loss of the other feed, that loss is the worst case. Otherwise it is the
        failure of one spare supply.
        """
        if feeds == 2 and self.find_state_without(1 - feed, feeds) != "off":
            return self.peak_watts / self.count_cords(feed, feeds)
        spare = self.supplies > self.supplies_needed
        return self.peak_watts / (self.supplies - 1 if spare else self.supplies)

    def find_state_without(self, feed: int, feeds: int) -> Literal["full speed", "slower", "off"]:
        """Return how the device runs after this feed has failed."""
        remaining = self.supplies - self.count_cords(feed, feeds)
        if remaining >= self.supplies_needed:
            return "full speed"
        return "slower" if remaining >= self.supplies_minimum else "off"


Contents = tuple[tuple[RackDevice, int], ...]
"""The devices in one rack, with the count of each."""
