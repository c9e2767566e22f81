"""What a run on this machine would need, from its model's profile: whether it fits into memory, and about how long it
takes. Training in main memory that is too small takes the whole machine down, so it is asked before."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.predict import STRATEGIES, compute_line
from gpuyard.units import counted, format_bytes

if TYPE_CHECKING:
    from gpuyard.measure.training.sweep import Sweep

_PROCESS_BYTES = 400e6  # Python with PyTorch, before a model is there
_CORE_FLOPS = 20e9  # assumed of one core in fp32; some reach three times as much
_PASSES = 3  # forward, and twice as much backward
_FEWEST_STEPS = 6  # of a point: two of warm-up, three windows, one without exchange


@dataclass(frozen=True)
class Needs:
    """Of so many workers at one batch."""

    memory_bytes: float  # of a GPU, or of all workers where they share one memory
    free_bytes: float | None  # None: nobody knows
    step_seconds: float  # 0: nobody knows

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.memory_bytes <= self.free_bytes

    @property
    def seconds(self) -> float:
        """The least that measuring it takes."""
        return _FEWEST_STEPS * self.step_seconds

    @property
    def memory_words(self) -> str:
        free = "" if self.free_bytes is None else f" and {format_bytes(self.free_bytes)} are free"
        return f"needs about {format_bytes(self.memory_bytes)} of memory{free}"


def free_memory_bytes() -> float:
    return float(psutil.virtual_memory().available)


def needs_of(sweep: "Sweep", profile: ModelProfile, workers: int, batch: int) -> Needs:
    """A synthetic GPU computes nothing and keeps no activations."""
    kept = float(
        STRATEGIES[sweep.strategy].memory_bytes(
            sweep.workload,
            profile,
            sweep.remedy,
            batch_per_gpu=np.array(0.0 if sweep.gpu else float(batch)),
            gpus=np.array(float(workers)),
        )
    )
    each = kept + (profile.gradient_bytes if workers > 1 else 0.0)  # the buckets of DDP
    step = _step_seconds(sweep, profile, batch)
    if sweep.device == "cuda":
        known = _gpu_here(sweep)
        return Needs(each, None if known is None else known.memory_bytes, step)
    free = free_memory_bytes() if sweep.place.on_this_machine else None
    return Needs(workers * (each + _PROCESS_BYTES), free, step)


def _step_seconds(sweep: "Sweep", profile: ModelProfile, batch: int) -> float:
    if sweep.synthetic is not None:
        times = sweep.synthetic
        return (times.fixed_seconds + batch * times.seconds_per_sample) * sweep.place.dilation
    if sweep.device == "cuda":
        known = _gpu_here(sweep)
        if known is None:
            return 0.0
        line = compute_line(sweep.workload, profile, known)
        return line.fixed_seconds + batch * line.seconds_per_sample
    cores = len(sweep.cores_by_worker[0])
    return _PASSES * profile.forward_flops * batch / (_CORE_FLOPS * max(1, cores))


def _gpu_here(sweep: "Sweep") -> Gpu | None:
    if not sweep.place.on_this_machine or not sweep.testbed.gpus:
        return None
    return catalog_gpu(sweep.testbed.gpus[0])


def refuse_unfit(sweep: "Sweep", profile: ModelProfile) -> None:
    """Raise where a point would not fit, with what does."""
    for point in sweep.points:
        needs = needs_of(sweep, profile, point.workers, point.batch_per_worker)
        if not needs.fits:
            raise UserMistake(
                f"{sweep.workload.name} with {counted(point.workers, 'worker')} at a batch of "
                f"{point.batch_per_worker} {needs.memory_words}; "
                + _instead(sweep, profile, point.workers, point.batch_per_worker)
            )


def _instead(sweep: "Sweep", profile: ModelProfile, workers: int, batch: int) -> str:
    smaller = [2**n for n in range(batch.bit_length() - 1, -1, -1)]
    for fewer in sorted({workers, 1}, reverse=True):
        for size in smaller:
            if needs_of(sweep, profile, fewer, size).fits:
                return f"{counted(fewer, 'worker')} at a batch of {size} would fit"
    return "not even one worker at a batch of 1 would fit; gpuyard predict says how it would do elsewhere"
