"""The time line of one step: what computes, which bucket is in flight, and what is waited for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.predict.table import Floats, StepTable, Traffic, step_parts

# below this the buckets are as good as undisturbed, and the reader need not be told
_NOTABLE_STRETCH = 1.02
# of the arithmetic of a step: backward does it once for inputs and once for weights
FORWARD_SHARE = 1 / 3
Lane = Literal["compute", "window", "exchange", "wait"]


@dataclass(frozen=True)
class Bar:
    """Something that lasts. A bucket is also ready: full, and waiting for the link."""

    lane: Lane
    name: str
    start_seconds: float
    end_seconds: float
    ready_seconds: float | None = None
    size_bytes: float | None = None


@dataclass(frozen=True)
class TimeLine:
    """Bars of one step. Those that compute or wait follow each other and end with the step."""

    step_seconds: float
    exchange_seconds: float  # of all buckets, if nothing disturbed them
    stretch: float  # times as long as undisturbed is every bucket in flight
    note: str  # where the drawing says more than is known
    bars: tuple[Bar, ...]

    def lane(self, lane: Lane) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if bar.lane == lane)

    def rows(self, most_bucket_rows: int) -> Iterator[tuple[str, tuple[Bar, ...]]]:
        """A row for each bar, with its name; where there are many buckets, neighbours share one."""
        yield from ((bar.name, (bar,)) for bar in (*self.lane("compute"), *self.lane("window")))
        buckets = self.lane("exchange")
        each = -(-len(buckets) // most_bucket_rows) or 1
        for first in range(0, len(buckets), each):
            row = buckets[first : first + each]
            alone = len(row) == 1
            yield (row[0].name if alone else f"buckets {first + 1}–{first + len(row)}"), row
        yield from ((bar.name, (bar,)) for bar in self.lane("wait"))


def time_line(table: StepTable) -> TimeLine:
    """The step of a one-row table, on the average worker.

    A bucket starts when it is full on the slowest worker and the one before it has ended. Less hides
    than could: with the overlap that was fitted the exchange ends later than on an undisturbed link,
    and where in the step that time is lost nobody has measured. It is spread evenly: every bucket in
    flight takes longer by the same factor, the one with which the last ends with the exposed tail.
    """
    if len(table.nodes) != 1:
        raise ValueError("a time line is drawn for one configuration at a time")
    parts, traffic = step_parts(table), table.traffic
    compute = float(parts.compute_seconds[0])
    # what an exchange hides behind is less than backward: optimiser, input and launches are in a step too
    window = compute * (1 - traffic.backward_share)
    forward = compute * FORWARD_SHARE
    host = float(table.host_overhead_seconds[0])
    # what a mean step waits is what the one that exchanges does, spread over all
    passes = float(np.broadcast_to(table.accumulate * table.local_sgd, (1,))[0])
    tail = (float(parts.exposed_communication_seconds[0]) - host) * passes
    straggling = float(parts.straggler_seconds[0])
    ready = window + traffic.buckets.ready_share * (compute - window)
    lag = 1 + straggling / compute
    seconds = _bucket_seconds(table)
    stretch = _stretch(ready * lag, seconds, compute * lag + tail) if tail > 0 else 1.0
    bars = [Bar("compute", "forward", 0.0, forward), Bar("compute", "backward", forward, compute)]
    if len(traffic.buckets.size_bytes) and not traffic.strategy.hides_nothing:
        bars.append(Bar("window", "hides exchange", window, compute))
    sizes = traffic.buckets.size_bytes * table.sent_share
    bars += _in_flight(traffic, sizes, ready, lag, stretch * seconds)
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
    note = _note(traffic, stretch)
    if passes > 1:
        note = f"Drawn is the one step in {passes:.0f} that exchanges. {note}".strip()
    return TimeLine(now, float(seconds.sum()), stretch, note, tuple(bars))


def _note(traffic: Traffic, stretch: float) -> str:
    if traffic.strategy.drawn_as and traffic.buckets.total_bytes:
        return traffic.strategy.drawn_as
    if stretch < _NOTABLE_STRETCH:
        return ""
    return (
        f"Every bucket in flight is drawn {stretch:.2f} × as long as on an undisturbed link, "
        "because with the fitted overlap less hides than could. Where in the step that time is "
        "lost has not been measured."
    )


def _bucket_seconds(table: StepTable) -> Floats:
    """Of each bucket alone on the link."""
    alone = table.traffic.strategy.bucket_seconds(table)
    sizes = table.traffic.buckets.size_bytes.tolist()
    seen = {size: float(alone(size * table.sent_share)[0]) for size in set(sizes)}
    return np.array([seen[size] for size in sizes])


def _stretch(ready: Floats, seconds: Floats, end_seconds: float) -> float:
    """The factor f for which the last bucket ends then: the largest, over i, of ready + f · all from i on."""
    remaining = np.cumsum(seconds[::-1])[::-1]
    taken = remaining > 0
    if not taken.any():
        return 1.0
    return float(np.min((end_seconds - ready[taken]) / remaining[taken]))


def _in_flight(
    traffic: Traffic, sizes: Floats, ready: Floats, lag: float, seconds: Floats
) -> list[Bar]:
    bars: list[Bar] = []
    free = 0.0
    for size, full, lasts in zip(sizes.tolist(), ready.tolist(), seconds.tolist(), strict=True):
        if lasts > 0:
            start = max(full * lag, free)
            free = start + lasts
            name = traffic.strategy.bucket_name(len(bars) + 1)
            bars.append(Bar("exchange", name, start, free, full, size))
    return bars
