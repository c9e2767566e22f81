"""The timeline of one step: compute, buckets in flight, and waiting."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.predictor.table import Floats, StepTable, Traffic, compute_step_parts

# below this factor a note about stretched buckets is not worth showing
_NOTABLE_STRETCH = 1.02
# share of a step's arithmetic: backward does it once for inputs and once for weights
FORWARD_SHARE = 1 / 3
Lane = Literal["compute", "window", "exchange", "wait"]


@dataclass(frozen=True)
class Bar:
    """One period of a step. A bucket also has the time at which it is full and waits for the link."""

    lane: Lane
    name: str
    start_seconds: float
    end_seconds: float
    ready_seconds: float | None = None
    size_bytes: float | None = None


@dataclass(frozen=True)
class StepTimeline:
    """The bars of one step. Compute and wait bars follow each other and fill the step."""

    step_seconds: float
    exchange_seconds: float  # all buckets on an undisturbed link
    stretch: float  # factor by which each bucket in flight is longer than on an undisturbed link
    note: str  # caveat about the drawing
    bars: tuple[Bar, ...]

    def lane(self, lane: Lane) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if bar.lane == lane)

    def rows(self, max_bucket_rows: int) -> Iterator[tuple[str, tuple[Bar, ...]]]:
        """Yield a named row for each bar; if there are many buckets, neighbors share a row."""
        yield from ((bar.name, (bar,)) for bar in (*self.lane("compute"), *self.lane("window")))
        buckets = self.lane("exchange")
        buckets_per_row = -(-len(buckets) // max_bucket_rows) or 1
        for first in range(0, len(buckets), buckets_per_row):
            row = buckets[first : first + buckets_per_row]
            alone = len(row) == 1
            yield (row[0].name if alone else f"buckets {first + 1}–{first + len(row)}"), row
        yield from ((bar.name, (bar,)) for bar in self.lane("wait"))


def build_timeline(table: StepTable) -> StepTimeline:
    """Build the timeline of the step of a one-row table, on the average worker.

    A bucket starts when it is full on the slowest worker and the previous one has finished. The fitted overlap hides less
    of the exchange than an ideal one, so the exchange finishes later than on an undisturbed link. Nobody has measured
    where in the step that time is lost, so it is spread evenly: every bucket in flight takes longer by the same factor,
    and the last one finishes with the exposed tail.
    """
    if len(table.nodes) != 1:
        raise ValueError("a timeline needs a table with exactly one configuration")
    parts, traffic = compute_step_parts(table), table.traffic
    compute = float(parts.compute_seconds[0])
    # an exchange hides behind less than backward: optimizer, input, and launches are in a step too
    window = compute * (1 - traffic.backward_share)
    forward = compute * FORWARD_SHARE
    host = float(table.host_overhead_seconds[0])
    # the mean wait of a step is that of the exchanging step, spread over all steps
    passes = float(np.broadcast_to(table.accumulate * table.local_sgd, (1,))[0])
    tail = (float(parts.exposed_communication_seconds[0]) - host) * passes
    straggling = float(parts.straggler_seconds[0])
    ready = window + traffic.buckets.ready_share * (compute - window)
    lag = 1 + straggling / compute
    seconds = _bucket_seconds(table)
    stretch = _find_stretch(ready * lag, seconds, compute * lag + tail) if tail > 0 else 1.0
    bars = [Bar("compute", "forward", 0.0, forward), Bar("compute", "backward", forward, compute)]
    if len(traffic.buckets.size_bytes) and not traffic.strategy.no_overlap_reason:
        bars.append(Bar("window", "hides exchange", window, compute))
    sizes = traffic.buckets.size_bytes * table.sent_share
    bars += _build_bucket_bars(traffic, sizes, ready, lag, stretch * seconds)
    now = compute
    for name, waited in (
        ("slowest worker", straggling),
        ("exposed exchange", tail),
        ("host", host),
        ("input", float(parts.input_seconds[0])),
    ):
        if waited > 0:
            bars.append(Bar("wait", name, now, now + waited))
            now += waited
    note = _describe_stretch(traffic, stretch)
    if passes > 1:
        note = f"The drawing shows the one step in {passes:.0f} that exchanges. {note}".strip()
    return StepTimeline(now, float(seconds.sum()), stretch, note, tuple(bars))


def _describe_stretch(traffic: Traffic, stretch: float) -> str:
    if traffic.strategy.timeline_note and traffic.buckets.total_bytes:
        return traffic.strategy.timeline_note
    if stretch < _NOTABLE_STRETCH:
        return ""
    return (
        f"Every bucket in flight is drawn {stretch:.2f} × as long as on an undisturbed link, "
        "because the fitted overlap hides less of the exchange than an ideal one. Where in the step that time "
        "is lost has not been measured."
    )


def _bucket_seconds(table: StepTable) -> Floats:
    """Return the time of each bucket alone on the link."""
    seconds_by_size = table.traffic.strategy.bucket_seconds(table)
    sizes = table.traffic.buckets.size_bytes.tolist()
    cache = {size: float(seconds_by_size(size * table.sent_share)[0]) for size in set(sizes)}
    return np.array([cache[size] for size in sizes])


def _find_stretch(ready: Floats, seconds: Floats, end_seconds: float) -> float:
    """Find the factor f for which the last bucket finishes at `end_seconds`.

    It finishes at the maximum, over i, of ready[i] + f · (all buckets from i on).
    """
    remaining = np.cumsum(seconds[::-1])[::-1]
    positive = remaining > 0
    if not positive.any():
        return 1.0
    return float(np.min((end_seconds - ready[positive]) / remaining[positive]))


def _build_bucket_bars(
    traffic: Traffic, sizes: Floats, ready: Floats, lag: float, seconds: Floats
) -> list[Bar]:
    bars: list[Bar] = []
    link_free = 0.0
    for size, full, duration in zip(sizes.tolist(), ready.tolist(), seconds.tolist(), strict=True):
        if duration > 0:
            start = max(full * lag, link_free)
            link_free = start + duration
            name = traffic.strategy.bucket_name(len(bars) + 1)
            bars.append(Bar("exchange", name, start, link_free, full, size))
    return bars
