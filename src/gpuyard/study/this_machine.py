"""Fits the predictor's model of this machine, a compute line and a link, to its own measurements."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuyard.catalog import ModelProfile
from gpuyard.measure.calibration import identify_hardware
from gpuyard.measure.training.records import Measurement
from gpuyard.predictor import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    ComputeLine,
    Constant,
    Pipe,
    Placement,
    Platform,
    PlatformScenario,
    Strategy,
    fit_line,
)
from gpuyard.predictor.calibration.applied import measured_constants
from gpuyard.predictor.calibration.defaults import GLOO_HOP, GLOO_LINK
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.specs import Workload

THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class ThisMachine:
    """The model of this machine for one workload, fitted to one-worker runs and bare all-reduces."""

    scenario: PlatformScenario
    placements: tuple[Placement, ...]
    doubt: str | None  # set if all runs behind the compute line are doubtful


def fit_this_machine(
    workload: Workload,
    profile: ModelProfile,
    strategy: Strategy,
    measurements: Sequence[Measurement],
    calibration: Calibration | None = None,
) -> ThisMachine:
    """Fit t(b) to the runs with the fewest workers, and the link to the bare all-reduces.

    Doubtful runs are used only if there are no others. A calibration of this hardware replaces assumed constants.
    """
    entry = calibration.find_entry(identify_hardware(measurements[0])) if calibration else None
    calibrated = (
        {constant.name: constant for constant in measured_constants(entry)} if entry else {}
    )
    fewest = min(m.workers for m in measurements)
    alone = prefer_valid([m for m in measurements if m.workers == fewest])
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
    # a calibrated link is only used with its own latency, as the two were fitted together
    link, hop = (
        calibrated.get("link_inside") or _fit_link(measurements),
        calibrated.get("hop_latency") or GLOO_HOP,
    )
    on_cpu = measurements[0].device == "cpu"
    workers = sorted({m.workers for m in measurements} | {1, 2, 4, 8})
    platform = Platform(
        name=THIS_MACHINE,
        nodes=1,
        gpus_per_node=max(*workers, most),
        inside=lambda _: Pipe(link.value, hop.value, "measured"),
        between=None,
        host_to_gpu_bytes_per_second=None,  # already part of the measured steps
        storage_bytes_per_second=None,
        memory_bytes=None,
        constants=(link, hop),
        link_basis="measured link" if link.basis == "measured" else "assumed link",
        measured=tuple(calibrated.values()),
    )
    scenario = PlatformScenario(
        workload,
        profile,
        platform,
        line,
        strategy,
        variation=platform.resolve_constant(CPU_VARIATION if on_cpu else GPU_VARIATION),
    )
    overlap = platform.resolve_constant(GLOO_OVERLAP) if on_cpu else scenario.overlaps[0]
    return ThisMachine(
        replace(scenario, overlap=overlap),
        tuple(Placement(count, 1, count) for count in workers),
        doubt,
    )


def prefer_valid(measurements: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the valid measurements, or all if none is valid."""
    return [m for m in measurements if m.doubt is None] or measurements


def _fit_link(measurements: Sequence[Measurement]) -> Constant:
    """Calculate the rate at which the ring formula gives the measured all-reduce times."""
    exchanged = [m for m in measurements if m.all_reduce_bytes and m.all_reduce_seconds]
    rates = [
        2 * (m.workers - 1) / m.workers * m.all_reduce_bytes / m.all_reduce_seconds
        for m in prefer_valid(exchanged)
        if m.all_reduce_bytes and m.all_reduce_seconds
    ]
    if rates:
        return Constant(
            "link_here",
            median(rates),
            "bytes/s",
            "measured",
            f"{len(rates)} bare all-reduces here",
        )
    return GLOO_LINK
