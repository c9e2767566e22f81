"""What is taken for a kind of hardware before anything is measured on it: where a fit starts, and what
it is drawn back to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.calibration.rows import Hardware, LineKey, LinkRates, TrainingRow
from gpuyard.predict.compute import MOST_FIXED, ComputeLine, compute_line, fit_line
from gpuyard.predict.constants import Constant, fitted
from gpuyard.predict.platform import Platform, platform_from
from gpuyard.predict.strategies import STRATEGIES
from gpuyard.predict.transport import Pipe
from gpuyard.specs import MachineSpec

# of gloo inside one machine, where several workers were not measured
HOP_HERE = Constant("hop_latency_here", 449e-6, "seconds", "elsewhere", c.CPU_RANKS)
LINK_HERE = Constant("link_here", 902e6, "bytes/s", "elsewhere", c.CPU_RANKS)
_MOST_GPUS = 64
_MOST_FIXED_SHARE = 0.95


@dataclass(frozen=True)
class Free:
    """The fit works with `u`, how many prior σ a constant is off its default: 0 where nothing is known."""

    name: str
    default: float
    unit: str
    sigma: float  # of the prior: of the logarithm, or of the share itself
    low: float
    high: float
    scale: Literal["logarithm", "share"] = "logarithm"

    def value(self, u: float) -> float:
        if self.scale == "share":
            found = self.default + self.sigma * u
        else:
            found = self.default * math.exp(self.sigma * u)
        return min(max(found, self.low), self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        return self._u(self.low), self._u(self.high)

    def _u(self, value: float) -> float:
        if self.scale == "share":
            return (value - self.default) / self.sigma
        return math.log(value / self.default) / self.sigma


def share(name: str, default: float, unit: str, sigma: float, most: float = 1.0) -> Free:
    """Between none and `most`."""
    return Free(name, default, unit, sigma, 0.0, most, "share")


def positive(name: str, default: float, unit: str, sigma: float, reach: float = 100.0) -> Free:
    """Known by its order of magnitude, and at most `reach` times off."""
    return Free(name, default, unit, sigma, default / reach, default * reach)


def default_platform(hardware: Hardware) -> Platform:
    """The machine as the predictor would see it without a calibration."""
    if hardware.gpu is not None and hardware.count <= _MOST_GPUS:
        # a run does not say how its GPUs hang together, so it is the topology of a plain machine
        machine = MachineSpec(gpu=hardware.gpu.id, gpus=hardware.count)
        return platform_from(hardware.label, hardware.gpu, machine)
    return Platform(
        name=hardware.label,
        nodes=1,
        gpus_per_node=hardware.count,
        inside=lambda _: Pipe(LINK_HERE.value, HOP_HERE.value, "assumed"),
        between=None,
        host_to_gpu_bytes_per_second=None,
        storage_bytes_per_second=None,
        memory_bytes=None,
        constants=(LINK_HERE, HOP_HERE),
    )


def default_variation(hardware: Hardware) -> Constant:
    return c.CPU_VARIATION if hardware.device == "cpu" else c.GPU_VARIATION


def default_overlap(hardware: Hardware) -> Constant:
    return c.GLOO_OVERLAP if hardware.device == "cpu" else STRATEGIES["ddp"].overlap(fitted())


def free_constants(hardware: Hardware, links: LinkRates | None) -> tuple[Free, ...]:
    """Those that runs on one machine can say something about."""
    platform = default_platform(hardware)
    inside = platform.inside(min(hardware.count, platform.gpus_per_node))
    rate, width = (links.bytes_per_second, 1.0) if links else (inside.bytes_per_second, 1.5)
    if not np.isfinite(rate):  # a single GPU has no ring
        rate = LINK_HERE.value
    variation = default_variation(hardware).value
    return (
        positive("link_inside", rate, "bytes/s", width),
        positive("hop_latency", inside.latency_seconds or HOP_HERE.value, "seconds", 2.0),
        positive("collective_launch", c.LAUNCH.value, "seconds", 1.0),
        share("overlap", default_overlap(hardware).value, "of what could hide", 0.25),
        share("backward_share", c.BACKWARD_SHARE.value, "of a step that can hide", 0.1, 0.9),
        Free("step_variation", variation, "of compute, 1 σ", 1.0, variation / 100, 1.0),
    )


@dataclass(frozen=True)
class FreeLine:
    """A workload's compute line as its time at a middle batch and the share of it that is fixed: that
    way one batch size says all about the first and nothing about the second."""

    key: LineKey
    batch: float
    seconds: Free
    fixed_share: Free

    def line(self, seconds: float, fixed_share: float) -> tuple[float, float]:
        fixed = fixed_share * seconds
        return fixed, (seconds - fixed) / self.batch


def default_line(hardware: Hardware, rows: Sequence[TrainingRow]) -> ComputeLine:
    """What is predicted without a calibration: a GPU's roofline or the workload's own figures; with
    neither, as a study does it, from the runs with the fewest workers."""
    if hardware.gpu is not None:
        return compute_line(rows[0].workload, rows[0].profile, hardware.gpu)
    fewest = min(row.workers for row in rows)
    points = [
        (float(row.batch_per_worker), row.busy_seconds or row.step_seconds)
        for row in rows
        if row.workers == fewest
    ]
    return ComputeLine(*fit_line(points), "measured here", "the runs with the fewest workers")


def free_line(hardware: Hardware, rows: Sequence[TrainingRow]) -> FreeLine:
    """Of one workload."""
    batch = float(np.exp(np.mean([np.log(row.batch_per_worker) for row in rows])))
    line = default_line(hardware, rows)
    seconds = line.fixed_seconds + batch * line.seconds_per_sample
    known = hardware.gpu is not None
    return FreeLine(
        rows[0].key,
        batch,
        # a roofline is 12 % off, one σ; a CPU has none, so its runs alone count
        positive("seconds", seconds, "seconds", 0.3 if known else 2.0),
        share(
            "fixed_share",
            min(line.fixed_seconds / seconds, MOST_FIXED) if known else 0.1,
            "of a step",
            0.3,
            _MOST_FIXED_SHARE,
        ),
    )
