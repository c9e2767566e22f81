"""One thing that goes into a rack, as racks and circuits see it."""

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
"""A switch is of one tier of the fabric between machines, of the storage or the management network."""
HOSTS: frozenset[str] = frozenset({"server", "storage"})


@dataclass(frozen=True)
class RackDevice:
    """Watts are what it takes from the wall."""

    kind: Kind
    name: str
    rack_units: int
    depth_mm: float
    weight_kg: float
    typical_watts: float
    peak_watts: float
    supplies: int
    supplies_needed: int
    supplies_minimum: int
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

    def cords_on(self, feed: int, feeds: int) -> int:
        """Supplies are shared out over the feeds, the odd one on the first."""
        return (self.supplies + feeds - 1 - feed) // feeds

    def cord_watts(self, feed: int, feeds: int) -> float:
        """What flows in each of its cords on this feed at worst, for longer than a moment: everything
        when the other feed has failed, if it then still runs; else when one spare supply has failed."""
        if feeds == 2 and self.after_losing(1 - feed, feeds) != "off":
            return self.peak_watts / self.cords_on(feed, feeds)
        spare = self.supplies > self.supplies_needed
        return self.peak_watts / (self.supplies - 1 if spare else self.supplies)

    def after_losing(self, feed: int, feeds: int) -> Literal["full speed", "slower", "off"]:
        """What it does when this feed is gone."""
        left = self.supplies - self.cords_on(feed, feeds)
        if left >= self.supplies_needed:
            return "full speed"
        return "slower" if left >= self.supplies_minimum else "off"


Contents = tuple[tuple[RackDevice, int], ...]
"""What is in one rack: devices and how many of each."""
