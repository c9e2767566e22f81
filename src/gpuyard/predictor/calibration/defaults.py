"""Default constants of unmeasured hardware: the starting point and the prior of a fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.calibration.rows import Hardware, LineKey, LinkRates, TrainingRow
from gpuyard.predictor.compute import MAX_FIXED, ComputeLine, estimate_compute_line, fit_line
from gpuyard.predictor.constants import Constant, load_tuning
from gpuyard.predictor.platform import Platform, create_machine_platform
from gpuyard.predictor.strategies import STRATEGIES
from gpuyard.predictor.transport import Pipe
from gpuyard.specs import MachineSpec

# gloo inside one machine, if several workers were not measured
GLOO_HOP = Constant("hop_latency_here", 449e-6, "seconds", "elsewhere", c.CPU_RANKS)
GLOO_LINK = Constant("link_here", 902e6, "bytes/s", "elsewhere", c.CPU_RANKS)
_MAX_GPUS = 64
_MAX_FIXED_SHARE = 0.95


@dataclass(frozen=True)
class FreeConstant:
    """A constant that a fit may move.

    The fit works with `u`, the distance of a constant from its default in prior σ.
    """

    name: str
    default: float
    unit: str
    sigma: float  # of the prior on the logarithm, or on the share itself
    low: float
    high: float
    scale: Literal["logarithm", "share"] = "logarithm"

    def value(self, u: float) -> float:
        if self.scale == "share":
            value = self.default + self.sigma * u
        else:
            value = self.default * math.exp(self.sigma * u)
        return min(max(value, self.low), self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        return self._u(self.low), self._u(self.high)

    def _u(self, value: float) -> float:
        if self.scale == "share":
            return (value - self.default) / self.sigma
        return math.log(value / self.default) / self.sigma


def create_share(
    name: str, default: float, unit: str, sigma: float, maximum: float = 1.0
) -> FreeConstant:
    """Create a share between 0 and `maximum`."""
    return FreeConstant(name, default, unit, sigma, 0.0, maximum, "share")


def create_positive(
    name: str, default: float, unit: str, sigma: float, max_factor: float = 100.0
) -> FreeConstant:
    """Create a positive constant that is at most `max_factor` times off its default."""
    return FreeConstant(name, default, unit, sigma, default / max_factor, default * max_factor)


def default_platform(hardware: Hardware) -> Platform:
    """Return the machine as the predictor sees it without a calibration."""
    if hardware.gpu is not None and hardware.count <= _MAX_GPUS:
        # a run does not record the wiring of its GPUs, so assume the default topology
        machine = MachineSpec(gpu=hardware.gpu.id, gpus=hardware.count)
        return create_machine_platform(hardware.label, hardware.gpu, machine)
    return Platform(
        name=hardware.label,
        nodes=1,
        gpus_per_node=hardware.count,
        inside=lambda _: Pipe(GLOO_LINK.value, GLOO_HOP.value, "assumed"),
        between=None,
        host_to_gpu_bytes_per_second=None,
        storage_bytes_per_second=None,
        memory_bytes=None,
        constants=(GLOO_LINK, GLOO_HOP),
    )


def default_variation(hardware: Hardware) -> Constant:
    return c.CPU_VARIATION if hardware.device == "cpu" else c.GPU_VARIATION


def default_overlap(hardware: Hardware) -> Constant:
    return c.GLOO_OVERLAP if hardware.device == "cpu" else STRATEGIES["ddp"].overlap(load_tuning())


def free_constants(hardware: Hardware, links: LinkRates | None) -> tuple[FreeConstant, ...]:
    """Return the constants that runs on one machine can determine."""
    platform = default_platform(hardware)
    inside = platform.inside(min(hardware.count, platform.gpus_per_node))
    rate, width = (links.bytes_per_second, 1.0) if links else (inside.bytes_per_second, 1.5)
    if not np.isfinite(rate):  # a single GPU has no ring
        rate = GLOO_LINK.value
    variation = default_variation(hardware).value
    return (
        create_positive("link_inside", rate, "bytes/s", width),
        create_positive("hop_latency", inside.latency_seconds or GLOO_HOP.value, "seconds", 2.0),
        create_positive("collective_launch", c.LAUNCH.value, "seconds", 1.0),
        create_share("overlap", default_overlap(hardware).value, "of what could hide", 0.25),
        create_share("backward_share", c.BACKWARD_SHARE.value, "of a step that can hide", 0.1, 0.9),
        FreeConstant("step_variation", variation, "of compute, 1 σ", 1.0, variation / 100, 1.0),
    )


@dataclass(frozen=True)
class FreeLine:
    """A workload's compute line as its time at a medium batch and the fixed share of it.

    With these parameters, a single batch size determines the first and says nothing about the second.
    """

    key: LineKey
    batch: float
    seconds: FreeConstant
    fixed_share: FreeConstant

    def line(self, seconds: float, fixed_share: float) -> tuple[float, float]:
        fixed = fixed_share * seconds
        return fixed, (seconds - fixed) / self.batch


def default_line(hardware: Hardware, rows: Sequence[TrainingRow]) -> ComputeLine:
    """Return the compute line without a calibration.

    It comes from a GPU's roofline or the workload's own figures; with neither, from the runs with the fewest workers.
    """
    if hardware.gpu is not None:
        return estimate_compute_line(rows[0].workload, rows[0].profile, hardware.gpu)
    fewest = min(row.workers for row in rows)
    points = [
        (float(row.batch_per_worker), row.busy_seconds or row.step_seconds)
        for row in rows
        if row.workers == fewest
    ]
    return ComputeLine(*fit_line(points), "measured here", "the runs with the fewest workers")


def free_line(hardware: Hardware, rows: Sequence[TrainingRow]) -> FreeLine:
    """Return the free compute line of one workload's rows."""
    batch = float(np.exp(np.mean([np.log(row.batch_per_worker) for row in rows])))
    line = default_line(hardware, rows)
    seconds = line.fixed_seconds + batch * line.seconds_per_sample
    has_roofline = hardware.gpu is not None
    return FreeLine(
        rows[0].key,
        batch,
        # a roofline is off by 12% (one σ); a CPU has none, so only its runs count
        create_positive("seconds", seconds, "seconds", 0.3 if has_roofline else 2.0),
        create_share(
            "fixed_share",
            min(line.fixed_seconds / seconds, MAX_FIXED) if has_roofline else 0.1,
            "of a step",
            0.3,
            _MAX_FIXED_SHARE,
        ),
    )
