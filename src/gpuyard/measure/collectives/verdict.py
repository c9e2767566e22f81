"""Measured against expected: is the number normal, and if not, why it may be. Pure."""

from collections.abc import Iterator, Sequence
from statistics import median

from gpuyard.measure.collectives.expected import (
    RingLinks,
    algorithm,
    bus_factor,
    expected_seconds,
)
from gpuyard.measure.collectives.records import (
    Backend,
    CollectiveResult,
    CoreLoad,
    Operation,
    Probe,
    SlowCollective,
    TimedCollective,
)
from gpuyard.measure.record import Cause
from gpuyard.units import format_bit_rate, format_byte_rate, format_share

BELOW = 0.75
# where hops are most of the time, a scheduler's moods are; only what takes twice as long is judged slow
BELOW_LATENCY_BOUND = 0.5
_WIDE_SPREAD = 0.25
_BUSY_BEFORE = 0.25
_SATURATED = 0.9


def judge(
    timed: TimedCollective, backend: Backend, ranks: int, links: RingLinks
) -> CollectiveResult:
    """One time beside the model's."""
    hops, moved = expected_seconds(timed.operation, backend, ranks, timed.bytes, links)
    seconds = median(timed.seconds)
    ratio = (hops + moved) / seconds
    latency_bound = hops > moved
    verdict = "below" if ratio < (BELOW_LATENCY_BOUND if latency_bound else BELOW) else "normal"
    rate = timed.bytes / seconds
    return CollectiveResult.model_validate(
        {
            "operation": timed.operation,
            "algorithm": algorithm(timed.operation, backend),
            "bytes": timed.bytes,
            "seconds": seconds,
            "repeats": timed.seconds,
            "spread": (max(timed.seconds) - min(timed.seconds)) / seconds,
            "algorithm_bytes_per_second": rate,
            "bus_bytes_per_second": rate * bus_factor(timed.operation, ranks),
            "expected_seconds": hops + moved,
            "ratio": ratio,
            "latency_bound": latency_bound,
            "correct": timed.correct,
            "verdict": verdict if timed.correct else "wrong",
        }
    )


def find_slow(
    results: Sequence[CollectiveResult],
    *,
    links: RingLinks,
    probe: Probe,
    load: CoreLoad,
    link_bytes_per_second: float | None,
    emulated: bool,
) -> tuple[SlowCollective, ...]:
    """Every operation that is below the model at some size.

    The links of a lab are what they are; where one is slow, it is the machine that can't carry it.
    """
    found = []
    for operation in dict.fromkeys(result.operation for result in results):
        slow = [r for r in results if r.operation == operation and r.verdict == "below"]
        if slow:
            causes = (
                *_busy_cores(slow, load),
                *_slow_link(links, probe, link_bytes_per_second, emulated=emulated),
                *(() if emulated else _slow_pairs(probe)),
                *_latency(slow, probe),
            )
            found.append(_slow_collective(operation, slow, causes or (_unexplained(slow[0]),)))
    return tuple(found)


def _slow_collective(
    operation: Operation, slow: Sequence[CollectiveResult], causes: tuple[Cause, ...]
) -> SlowCollective:
    return SlowCollective(
        operation=operation,
        smallest_bytes=min(result.bytes for result in slow),
        largest_bytes=max(result.bytes for result in slow),
        worst_ratio=min(result.ratio for result in slow),
        causes=causes,
    )


def _unexplained(slow: CollectiveResult) -> Cause:
    return Cause(
        name="algorithm",
        why="the bare links reach their rate and the cores are free, so the collective itself is "
        f"slower than a {slow.algorithm}",
        next_step="measure again with more --repeats; with NCCL look at NCCL_DEBUG=INFO for the "
        "algorithm and protocol that it chose",
    )


def _slow_link(
    links: RingLinks, probe: Probe, sold: float | None, *, emulated: bool
) -> Iterator[Cause]:
    share = probe.ring_bytes_per_second / links.bytes_per_second
    if sold is not None and share < BELOW:
        yield Cause(
            name="slow-link",
            why=f"bare sends around the ring carry {format_bit_rate(probe.ring_bytes_per_second)} "
            f"where the slowest link should give {format_bit_rate(links.bytes_per_second)}",
            next_step="this machine can't carry all of the lab's links at once: use fewer nodes, or more "
            "dilation"
            if emulated
            else "look at the negotiated speed (ethtool), the interface that is used "
            "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), and who else uses the link",
        )


def _slow_pairs(probe: Probe) -> Iterator[Cause]:
    if not probe.pairs:
        return
    usual = median(pair.bytes_per_second for pair in probe.pairs)
    slow = [pair for pair in probe.pairs if pair.bytes_per_second < BELOW * usual]
    if slow:
        named = ", ".join(
            f"{pair.source} → {pair.target} at {format_bit_rate(pair.bytes_per_second)}"
            for pair in slow
        )
        yield Cause(
            name="slow-pair",
            why=f"some links are slower than the others at {format_bit_rate(usual)}: rank {named}; the "
            "slowest sets the pace of a ring",
            next_step="look at the cable, port and negotiated speed of the rank that they share, or "
            "leave it out",
        )


def _busy_cores(slow: Sequence[CollectiveResult], load: CoreLoad) -> Iterator[Cause]:
    if load.before > _BUSY_BEFORE or max(result.spread for result in slow) > _WIDE_SPREAD:
        signs = [f"{format_share(load.before)} of the cores were busy before the bench began"]
        signs += [f"repeats differ by up to {format_share(max(result.spread for result in slow))}"]
        yield Cause(
            name="other-load",
            why=f"something else may use the machine: {' and '.join(signs)}",
            next_step="look at top, and measure again when it is alone",
        )
    if load.during > _SATURATED and load.ranks_per_core >= 1:
        yield Cause(
            name="saturated-cores",
            why=f"{format_share(load.during)} of this machine's cores were busy, with "
            f"{load.ranks_per_core:g} {'rank' if load.ranks_per_core == 1 else 'ranks'} on each: "
            "copies are made by the CPU",
            next_step="use fewer workers, a slower link, or a lab with more --dilation",
        )


def _latency(slow: Sequence[CollectiveResult], probe: Probe) -> Iterator[Cause]:
    if all(result.latency_bound for result in slow):
        yield Cause(
            name="latency",
            why=f"only small messages are slow, where each of many steps takes "
            f"{1e6 * probe.latency_seconds:.0f} µs or more and moves hardly anything "
            f"({format_byte_rate(max(r.algorithm_bytes_per_second for r in slow))})",
            next_step="send fewer and larger messages: larger buckets, or fused gradients",
        )
