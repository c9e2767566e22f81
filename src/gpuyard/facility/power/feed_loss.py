"""What happens when one feed fails: which devices go on, and how full the other feed's PDUs get."""

from collections import Counter
from dataclasses import dataclass

from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.rack_power import LoadedPdu


@dataclass(frozen=True)
class FeedLoss:
    """One feed is gone. The fullest line is a share of what the breaker may carry for hours."""

    feed: str
    full_speed: int
    slower: int
    off: int
    fullest_line: float

    @property
    def sentence(self) -> str:
        parts = [
            (self.full_speed, "run on at full speed"),
            (self.slower, "run on slower, with fewer supplies than they need"),
            (self.off, "go off"),
        ]
        what = ", ".join(f"{count} {words}" for count, words in parts if count)
        rest = ""
        if self.full_speed or self.slower:
            rest = f"; the fullest line of the other feed is at {100 * self.fullest_line:.0f} %"
            rest += " of what it may carry"
        if self.off == self.total:
            return f"Feed {self.feed} fails: everything goes off."
        return f"Feed {self.feed} fails: of {self.total} devices {what}{rest}."

    @property
    def total(self) -> int:
        return self.full_speed + self.slower + self.off


def feed_losses(design: FacilityDesign) -> tuple[FeedLoss, ...]:
    """One for each feed."""
    feeds = design.site.feeds
    losses = []
    for feed in range(feeds):
        outcome = Counter(p.device.after_losing(feed, feeds) for p in design.room.placed)
        rest = [
            max(load.line_amps) / load.pdu.usable_line_amps
            for rack in dict.fromkeys(design.power)
            for load in rack.pdus
            if load.feed != "AB"[feed]
        ]
        losses.append(
            FeedLoss(
                "AB"[feed],
                outcome["full speed"],
                outcome["slower"],
                outcome["off"],
                max(rest, default=0.0),
            )
        )
    return tuple(losses)


@dataclass(frozen=True)
class RackLoss:
    """One feed is gone from one rack, and these PDUs of the other carry what goes on."""

    feed: str
    full_speed: int
    slower: int
    off: int
    left: tuple[LoadedPdu, ...]

    @property
    def fullest_line(self) -> float:
        """As a share of what it may carry for hours; 0 where nothing is left."""
        return max((max(s.line_amps) / s.pdu.usable_line_amps for s in self.left), default=0.0)

    @property
    def fullest_bank(self) -> float:
        return max((load.fullest_bank for load in self.left), default=0.0)


def rack_losses(design: FacilityDesign, rack: int) -> tuple[RackLoss, ...]:
    """One for each feed of this rack."""
    feeds = design.site.feeds
    losses = []
    for feed in range(feeds):
        outcome = Counter(p.device.after_losing(feed, feeds) for p in design.room.in_rack(rack))
        counts = (outcome["full speed"], outcome["slower"], outcome["off"])
        left = tuple(load for load in design.power[rack].pdus if load.feed != "AB"[feed])
        losses.append(RackLoss("AB"[feed], *counts, left))
    return tuple(losses)
