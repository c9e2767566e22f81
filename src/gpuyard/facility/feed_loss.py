"""What happens when one feed fails: which devices go on, and how full the other feed's PDUs get."""

from collections import Counter
from dataclasses import dataclass

from gpuyard.facility.design import FacilityDesign


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
            max(load.line_amps) / load.strip.usable_line_amps
            for rack in dict.fromkeys(design.power)
            for load in rack.strips
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
