"""Compares measured with expected times: judges each result, and finds the likely causes of slow ones."""

from collections.abc import Iterator, Sequence
from statistics import median

from gpuyard.choices import Backend
from gpuyard.measure.collectives.expected import (
    RingLinks,
    bus_factor,
    expected_seconds,
    name_algorithm,
)
from gpuyard.measure.collectives.records import (
    CollectiveResult,
    CoreLoad,
    Probe,
    SlowCollective,
    TimedCollective,
)
from gpuyard.measure.record import Cause
from gpuyard.units import format_bit_rate, format_byte_rate, format_share

BELOW = 0.75
# if latency dominates, so does scheduling noise: such a result is slow only if it takes twice as long
BELOW_LATENCY_BOUND = 0.5
_WIDE_SPREAD = 0.25
_BUSY_BEFORE = 0.25
_SATURATED = 0.9


def judge(
    timed: TimedCollective, backend: Backend, ranks: int, links: RingLinks
) -> CollectiveResult:
    """Compare one operation at one size with the model."""
    latency, transfer = expected_seconds(timed.operation, backend, ranks, timed.bytes, links)
    seconds = median(timed.seconds)
    ratio = (latency + transfer) / seconds
    latency_bound = latency > transfer
    verdict = "below" if ratio < (BELOW_LATENCY_BOUND if latency_bound else BELOW) else "normal"
    rate = timed.bytes / seconds
    return CollectiveResult.model_validate(
        {
            "operation": timed.operation,
            "algorithm": name_algorithm(timed.operation, backend),
            "bytes": timed.bytes,
            "seconds": seconds,
            "repeats": timed.seconds,
            "spread": (max(timed.seconds) - min(timed.seconds)) / seconds,
            "algorithm_bytes_per_second": rate,
            "bus_bytes_per_second": rate * bus_factor(timed.operation, ranks),
            "expected_seconds": latency + transfer,
            "ratio": ratio,
            "latency_bound": latency_bound,
            "correct": timed.correct,
            "verdict": verdict if timed.correct else "wrong",
        }
    )


def find_slow_collectives(
    results: Sequence[CollectiveResult],
    *,
    links: RingLinks,
    probe: Probe,
    load: CoreLoad,
    link_bytes_per_second: float | None,
    emulated: bool,
) -> tuple[SlowCollective, ...]:
    """Find operations that are slower than the model at some size, with likely causes.

    An emulated link is never faulty: if it is slow, this machine cannot emulate it.
    """
    findings = []
    for operation in dict.fromkeys(result.operation for result in results):
        slow = [r for r in results if r.operation == operation and r.verdict == "below"]
        if slow:
            causes = (
                *_find_busy_cores(slow, load),
                *_find_slow_link(links, probe, link_bytes_per_second, emulated=emulated),
                *(() if emulated else _find_slow_pairs(probe)),
                *_find_latency(slow, probe),
            )
            findings.append(
                SlowCollective(
                    operation=operation,
                    smallest_bytes=min(result.bytes for result in slow),
                    largest_bytes=max(result.bytes for result in slow),
                    worst_ratio=min(result.ratio for result in slow),
                    causes=causes or (_blame_algorithm(slow[0]),),
                )
            )
    return tuple(findings)


def _blame_algorithm(slow: CollectiveResult) -> Cause:
    return Cause(
        name="algorithm",
        why="the links alone reach their rate and the cores are free, so the collective itself is "
        f"slower than a {slow.algorithm}",
        next_step="measure again with more --repeats; with NCCL, set NCCL_DEBUG=INFO to see its "
        "algorithm and protocol",
    )


def _find_slow_link(
    links: RingLinks, probe: Probe, nominal: float | None, *, emulated: bool
) -> Iterator[Cause]:
    share = probe.ring_bytes_per_second / links.bytes_per_second
    if nominal is not None and share < BELOW:
        yield Cause(
            name="slow-link",
            why=f"plain sends around the ring reach {format_bit_rate(probe.ring_bytes_per_second)}, "
            f"but the slowest link should reach {format_bit_rate(links.bytes_per_second)}",
            next_step="this machine cannot emulate all of the lab's links at once: use fewer nodes, or "
            "more dilation"
            if emulated
            else "check the negotiated speed (ethtool), the interface "
            "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), and whether others use the link",
        )


def _find_slow_pairs(probe: Probe) -> Iterator[Cause]:
    if not probe.pairs:
        return
    typical = median(pair.bytes_per_second for pair in probe.pairs)
    slow = [pair for pair in probe.pairs if pair.bytes_per_second < BELOW * typical]
    if slow:
        described = ", ".join(
            f"{pair.source} → {pair.target} at {format_bit_rate(pair.bytes_per_second)}"
            for pair in slow
        )
        yield Cause(
            name="slow-pair",
            why=f"some links are slower than the others at {format_bit_rate(typical)}: rank "
            f"{described}; the slowest link limits the ring",
            next_step="check the cable, port, and negotiated speed of the rank that they share, or "
            "leave it out",
        )


def _find_busy_cores(slow: Sequence[CollectiveResult], load: CoreLoad) -> Iterator[Cause]:
    spread = max(result.spread for result in slow)
    if load.before > _BUSY_BEFORE or spread > _WIDE_SPREAD:
        yield Cause(
            name="other-load",
            why=f"other programs may use the machine: {format_share(load.before)} of the cores were "
            f"busy before the bench began, and repeats differ by up to {format_share(spread)}",
            next_step="check top, and measure again when nothing else runs",
        )
    if load.during > _SATURATED and load.ranks_per_core >= 1:
        yield Cause(
            name="saturated-cores",
            why=f"{format_share(load.during)} of this machine's cores were busy, with "
            f"{load.ranks_per_core:g} {'rank' if load.ranks_per_core == 1 else 'ranks'} on each; "
            "the CPU does the copying",
            next_step="use fewer workers, a slower link, or a lab with more --dilation",
        )


def _find_latency(slow: Sequence[CollectiveResult], probe: Probe) -> Iterator[Cause]:
    if all(result.latency_bound for result in slow):
        yield Cause(
            name="latency",
            why=f"only small messages are slow: each of many steps takes "
            f"{1e6 * probe.latency_seconds:.0f} µs or more and moves few bytes "
            f"({format_byte_rate(max(r.algorithm_bytes_per_second for r in slow))})",
            next_step="send fewer and larger messages: larger buckets, or fused gradients",
        )
