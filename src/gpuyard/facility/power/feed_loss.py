"""What happens when one feed fails: which devices keep running, and how full the other feed's PDUs get."""

from collections import Counter
from dataclasses import dataclass

from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.rack_power import LoadedPdu


@dataclass(frozen=True)
class FeedLoss:
    """One feed is gone; `left` are the PDUs of the other, which carry what keeps running."""

    feed: str
    full_speed: int
    slower: int
    off: int
    left: tuple[LoadedPdu, ...]

    @property
    def fullest_line(self) -> float:
        """As a share of what it may carry continuously; 0 where nothing is left."""
        return max((load.fullest_line for load in self.left), default=0.0)

    @property
    def fullest_bank(self) -> float:
        return max((load.fullest_bank for load in self.left), default=0.0)

    @property
    def sentence(self) -> str:
        total = self.full_speed + self.slower + self.off
        if self.off == total:
            return f"If feed {self.feed} fails, everything goes off."
        outcomes = [
            (self.full_speed, "at full speed"),
            (self.slower, "slower, with fewer power supplies than they need"),
            (self.off, "off"),
        ]
        (first, words), *others = [outcome for outcome in outcomes if outcome[0]]
        devices = "devices" if total > 1 else "device"
        what = [f"{first} of {total} {devices} {words}", *(f"{n} {w}" for n, w in others)]
        return (
            f"If feed {self.feed} fails: {', '.join(what)}; the fullest line of the other feed is at"
            f" {100 * self.fullest_line:.0f} % of its limit."
        )


def feed_losses(design: FacilityDesign, rack: int | None = None) -> tuple[FeedLoss, ...]:
    """One for each feed, of a rack or of the whole room."""
    feeds = design.site.feeds
    placed = design.room.placed if rack is None else design.room.in_rack(rack)
    power = dict.fromkeys(design.power) if rack is None else [design.power[rack]]
    losses = []
    for feed in range(feeds):
        name = "AB"[feed]
        outcome = Counter(one.device.after_losing(feed, feeds) for one in placed)
        left = tuple(load for one in power for load in one.pdus if load.feed != name)
        counts = (outcome["full speed"], outcome["slower"], outcome["off"])
        losses.append(FeedLoss(name, *counts, left))
    return tuple(losses)
