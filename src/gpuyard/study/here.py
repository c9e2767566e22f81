"""This machine as the predictor sees it: a compute line and a link, both from its own measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuyard.measure import Measurement
from gpuyard.predict import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    ComputeLine,
    Constant,
    Pipe,
    Placement,
    Platform,
    default_overlap,
    fit_line,
)
from gpuyard.specs import Strategy

NAME = "this machine"
# what a gloo or NCCL hop costs inside one machine; the measured all-reduces are long against it
_HOP = Constant("hop_latency_here", 50e-6, "seconds", "assumed", "no small message was timed")


@dataclass(frozen=True)
class Here:
    """What the one-worker runs and the bare all-reduces of one workload say about this machine."""

    line: ComputeLine
    platform: Platform
    overlap: Constant
    variation: Constant
    placements: tuple[Placement, ...]


def look_at(measurements: Sequence[Measurement], strategy: Strategy) -> Here:
    """Fit t(b) to the fewest workers measured, and the link to the bare all-reduces."""
    fewest = min(m.workers for m in measurements)
    alone = [m for m in measurements if m.workers == fewest]
    points = [
        (float(m.batch_per_worker), m.step.compute_seconds + m.step.input_seconds) for m in alone
    ]
    fixed, per_sample = fit_line(points)
    most = max(m.workers for m in measurements)
    source = (
        f"{len(points)} runs with {fewest} worker{'s' if fewest > 1 else ''}; "
        f"beyond {most} as if the machine had more of the same"
    )
    line = ComputeLine(fixed, per_sample, "measured here", source)
    link = _link(measurements)
    on_cpu = measurements[0].device == "cpu"
    workers = sorted({m.workers for m in measurements} | {1, 2, 4, 8})
    platform = Platform(
        name=NAME,
        nodes=1,
        gpus_per_node=max(*workers, most),
        inside=lambda _: Pipe(link.value, _HOP.value, "measured"),
        between=None,
        host_to_gpu_bytes_per_second=None,  # already inside the measured steps
        storage_bytes_per_second=None,
        memory_bytes=None,
        constants=(link, _HOP),
        link_basis="measured link" if link.basis == "measured" else "assumed link",
    )
    return Here(
        line,
        platform,
        GLOO_OVERLAP if on_cpu else default_overlap(strategy),
        CPU_VARIATION if on_cpu else GPU_VARIATION,
        tuple(Placement(count, 1, count) for count in workers),
    )


def _link(measurements: Sequence[Measurement]) -> Constant:
    """The rate that makes the ring formula give the measured all-reduce."""
    rates = [
        2 * (m.workers - 1) / m.workers * m.all_reduce_bytes / m.all_reduce_seconds
        for m in measurements
        if m.all_reduce_bytes and m.all_reduce_seconds
    ]
    if rates:
        return Constant(
            "link_here", median(rates), "bytes/s", "measured", f"{len(rates)} bare all-reduces here"
        )
    return Constant("link_here", 1e9, "bytes/s", "assumed", "several workers were not measured")
