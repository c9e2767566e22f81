"""Compares the nodes' speeds alone with each other and with the spec. A slow node is measured again before it is accused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from gpuyard.measure.acceptance.expected import ClusterPromise
from gpuyard.measure.acceptance.records import Attempt, Check, NodeSpeed
from gpuyard.measure.collectives.verdict import BELOW
from gpuyard.units import format_byte_rate, format_share

_STORAGE_BELOW = 0.5  # disks vary more than processors
_MIN_GPU_PEAK_SHARE = 0.5  # large half-precision products usually reach two thirds of the peak
_DISTURBED = 0.25
_THROTTLED = 0.1

_Read = Callable[[NodeSpeed], float | None]
_METRICS: tuple[tuple[str, _Read, float, Callable[[float], str]], ...] = (
    (
        "matrix products",
        lambda s: s.gemm_flops_per_second,
        BELOW,
        lambda rate: f"{rate / 1e9:.3g} GFLOP/s",
    ),
    ("memory", lambda s: s.memory_bytes_per_second, BELOW, format_byte_rate),
    (
        "storage writes",
        lambda s: s.storage_write_bytes_per_second,
        _STORAGE_BELOW,
        format_byte_rate,
    ),
    ("storage reads", lambda s: s.storage_read_bytes_per_second, _STORAGE_BELOW, format_byte_rate),
)


def find_suspects(attempts: Sequence[Attempt]) -> list[str]:
    """Return the nodes that were slow in every attempt so far."""
    return [
        node
        for node in (attempts[0].speeds if attempts else ())
        if any(
            (ratio := find_ratio(attempts, node, read)) is not None and ratio < limit
            for _, read, limit, _ in _METRICS
        )
    ]


def choose_references(attempts: Sequence[Attempt], suspects: Sequence[str]) -> list[str]:
    """Choose up to three nodes to measure beside the suspects, so that a disturbance hits both."""
    healthy = [node for node in attempts[0].speeds if node not in suspects]
    middle = len(healthy) // 2
    return list(dict.fromkeys([*healthy[:1], *healthy[middle : middle + 1], *healthy[-1:]]))


def find_ratio(attempts: Sequence[Attempt], node: str, read: _Read) -> float | None:
    """Return a node's rate over the typical one of the same attempt; the best of all attempts counts."""
    ratios = []
    for attempt in attempts:
        own = read(attempt.speeds[node]) if node in attempt.speeds else None
        rates = [read(attempt.speeds[name]) for name in attempt.references or attempt.speeds]
        known = [rate for rate in rates if rate is not None]
        if own is not None and known and len(attempt.speeds) > 1:
            ratios.append(own / median(known))
    return max(ratios, default=None)


def judge_speeds(
    attempts: Sequence[Attempt],
    promise: ClusterPromise,
    *,
    retried: bool,
) -> Iterator[Check]:
    """Judge every node. A suspect that was not measured again is a warning."""
    for node, speed in (attempts[0].speeds if attempts else {}).items():
        for subject, read, limit, format_rate in _METRICS:
            ratio = find_ratio(attempts, node, read)
            own = max(
                filter(None, (read(a.speeds[node]) for a in attempts if node in a.speeds)),
                default=None,
            )
            if ratio is None or own is None or ratio >= limit:
                continue
            reason, certain = _explain(speed, subject)
            yield Check(
                phase="alone",
                node=node,
                subject=subject,
                grade="fail" if retried and certain else "warn",
                text=f"{format_rate(own)}, {format_share(ratio)} of what the other nodes reach{reason}",
                ratio=ratio,
                lost_share=1 - ratio if subject == "matrix products" else 0.0,
                next_step=_NEXT_STEPS[subject],
            )
        yield from _judge_gpus(node, speed, attempts[0].speeds, promise)
        yield from _find_strangers(node, speed, attempts[0].speeds)


_NEXT_STEPS = {
    "matrix products": "check the clock and temperature (turbostat, sensors), the BIOS power profile, CPU "
    "quotas, and other programs (top)",
    "memory": "check that all memory modules are there and at the same clock (dmidecode -t memory)",
    "storage writes": "check the disk (smartctl), and whether others use the same storage",
    "storage reads": "check the disk (smartctl), and whether others use the same storage",
}


def _explain(speed: NodeSpeed, subject: str) -> tuple[str, bool]:
    """Return a likely reason for a slow node, and whether the node itself is to blame."""
    if subject.startswith("storage"):
        return "", True
    quota = min(window.quota_share for window in speed.gemm)
    throttled = max(window.throttled_share or 0.0 for window in speed.gemm)
    if quota < 1 or throttled > _THROTTLED:
        return f"; a CPU quota leaves it {format_share(quota)} of its cores", True
    others = min((window.other_share or 0.0 for window in speed.gemm), default=0.0)
    if others > _DISTURBED and not speed.shared_machine:
        return f"; other programs used {format_share(others)} of its cores", False
    return "", True


def _judge_gpus(
    node: str, speed: NodeSpeed, all_nodes: Mapping[str, NodeSpeed], promise: ClusterPromise
) -> Iterator[Check]:
    peak = promise.gpu.peak_flops("fp16")
    rates = [gpu.flops_per_second for other in all_nodes.values() for gpu in other.gpu_gemm]
    for gpu in speed.gpu_gemm:
        ratio = gpu.flops_per_second / median(rates)
        of_peak = gpu.flops_per_second / peak if peak else None
        if ratio < BELOW or (of_peak is not None and of_peak < _MIN_GPU_PEAK_SHARE):
            share = f", {format_share(of_peak)} of its peak" if of_peak is not None else ""
            yield Check(
                phase="alone",
                node=node,
                subject=gpu.gpu,
                grade="fail",
                text=f"{gpu.flops_per_second / 1e12:.3g} TFLOP/s, {format_share(ratio)} of the other GPUs{share}",
                ratio=ratio,
                lost_share=max(0.0, 1 - ratio),
                next_step="check nvidia-smi -q -d CLOCK,PERFORMANCE,POWER, and cooling",
            )
    for link in speed.gpu_links:
        same = [
            other.bytes_per_second
            for each in all_nodes.values()
            for other in each.gpu_links
            if other.link == link.link
        ]
        expected = link.expected_bytes_per_second or median(same)
        ratio = link.bytes_per_second / expected
        if ratio < BELOW:
            yield Check(
                phase="alone",
                node=node,
                subject=link.link,
                grade="fail",
                text=f"{format_byte_rate(link.bytes_per_second)} of {format_byte_rate(expected)}",
                ratio=ratio,
                next_step="run `gpuyard bench links` on the node, which lists the likely causes",
            )


def _find_strangers(
    node: str, speed: NodeSpeed, all_nodes: Mapping[str, NodeSpeed]
) -> Iterator[Check]:
    """Find programs that use one node and not the others."""
    if speed.shared_machine or len(all_nodes) < 3:
        return

    def find_share(measured: NodeSpeed) -> float:
        return min((window.other_share or 0.0 for window in measured.gemm), default=0.0)

    share, typical = find_share(speed), median(map(find_share, all_nodes.values()))
    if share > _DISTURBED and typical < _DISTURBED / 2:
        yield Check(
            phase="alone",
            node=node,
            subject="other programs",
            grade="warn",
            text=f"they use {format_share(share)} of its cores; {format_share(typical)} elsewhere",
            next_step="look at top on the node",
        )
