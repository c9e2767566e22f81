"""This machine as the predictor sees it: a compute line and a link, both from its own measurements."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuyard.catalog import ModelProfile
from gpuyard.measure import Measurement
from gpuyard.measure.calibration import hardware_of
from gpuyard.predict import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    HOP_HERE,
    LINK_HERE,
    Calibration,
    ComputeLine,
    Constant,
    Pipe,
    Placement,
    Platform,
    PlatformScenario,
    Strategy,
    fit_line,
    measured_constants,
)
from gpuyard.specs import Workload

THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class ThisMachine:
    """What the one-worker runs and the bare all-reduces of one workload say about this machine."""

    scenario: PlatformScenario
    placements: tuple[Placement, ...]
    doubt: str | None  # of the runs that the compute line stands on, where none is credible


def fit_this_machine(
    workload: Workload,
    profile: ModelProfile,
    strategy: Strategy,
    measurements: Sequence[Measurement],
    calibration: Calibration | None = None,
) -> ThisMachine:
    """Fit t(b) to the fewest workers measured, and the link to the bare all-reduces, to credible runs
    where there are any; what a calibration knows of this hardware stands in for what would be assumed."""
    entry = calibration.of(hardware_of(measurements[0])) if calibration else None
    own = {constant.name: constant for constant in measured_constants(entry)} if entry else {}
    fewest = min(m.workers for m in measurements)
    alone = credible_first([m for m in measurements if m.workers == fewest])
    doubt = alone[0].doubt
    points = [
        (float(m.batch_per_worker), m.step.compute_seconds + m.step.input_seconds) for m in alone
    ]
    fixed, per_sample = fit_line(points)
    most = max(m.workers for m in measurements)
    source = (
        f"{len(points)} {'doubtful ' if doubt else ''}run{'s' if len(points) > 1 else ''} "
        f"with {fewest} worker{'s' if fewest > 1 else ''}; "
        f"beyond {most} as if the machine had more of the same"
    )
    line = ComputeLine(fixed, per_sample, "measured here", source)
    # the two were fitted together, so a calibrated link is only taken with its own latency
    link, hop = own.get("link_inside") or _link(measurements), own.get("hop_latency") or HOP_HERE
    on_cpu = measurements[0].device == "cpu"
    workers = sorted({m.workers for m in measurements} | {1, 2, 4, 8})
    platform = Platform(
        name=THIS_MACHINE,
        nodes=1,
        gpus_per_node=max(*workers, most),
        inside=lambda _: Pipe(link.value, hop.value, "measured"),
        between=None,
        host_to_gpu_bytes_per_second=None,  # already inside the measured steps
        storage_bytes_per_second=None,
        memory_bytes=None,
        constants=(link, hop),
        link_basis="measured link" if link.basis == "measured" else "assumed link",
        own=tuple(own.values()),
    )
    scenario = PlatformScenario(
        workload,
        profile,
        platform,
        line,
        strategy,
        variation=platform.constant(CPU_VARIATION if on_cpu else GPU_VARIATION),
    )
    overlap = platform.constant(GLOO_OVERLAP) if on_cpu else scenario.overlaps[0]
    return ThisMachine(
        replace(scenario, overlap=overlap),
        tuple(Placement(count, 1, count) for count in workers),
        doubt,
    )


def credible_first(measurements: Sequence[Measurement]) -> Sequence[Measurement]:
    """The credible ones; where there are none, all."""
    return [m for m in measurements if m.doubt is None] or measurements


def _link(measurements: Sequence[Measurement]) -> Constant:
    """The rate that makes the ring formula give the measured all-reduce."""
    exchanged = [m for m in measurements if m.all_reduce_bytes and m.all_reduce_seconds]
    rates = [
        2 * (m.workers - 1) / m.workers * m.all_reduce_bytes / m.all_reduce_seconds
        for m in credible_first(exchanged)
        if m.all_reduce_bytes and m.all_reduce_seconds
    ]
    if rates:
        return Constant(
            "link_here", median(rates), "bytes/s", "measured", f"{len(rates)} bare all-reduces here"
        )
    return LINK_HERE
