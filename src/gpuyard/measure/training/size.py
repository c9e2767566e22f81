"""Estimates the memory and time that a run on this machine needs, from its model's profile.

Training that does not fit into main memory can take the whole machine down, so this is checked before a run starts.
"""

from dataclasses import dataclass

import numpy as np
import psutil

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.training.strategies import DIVIDING_STRATEGIES
from gpuyard.measure.training.sweep import Sweep
from gpuyard.predictor import STRATEGIES, estimate_compute_line
from gpuyard.predictor.strategies.base import FRAMEWORK_BYTES
from gpuyard.specs import DEFAULT_STRATEGY
from gpuyard.units import format_bytes, format_count

_PROCESS_BYTES = 400e6  # Python with PyTorch, before a model is loaded
_CORE_FLOPS = 20e9  # assumed for one core in fp32; some reach three times as much
_PASSES = 3  # forward, and backward at twice the cost
_MIN_STEPS = 6  # per point: two of warm-up, three windows, one without gradient exchange


@dataclass(frozen=True)
class ResourceNeeds:
    """The memory and step time of a number of workers at one batch size."""

    memory_bytes: float  # per GPU, or of all workers together if they share main memory
    free_bytes: float | None  # None: unknown
    step_seconds: float  # 0: unknown

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.memory_bytes <= self.free_bytes

    @property
    def seconds(self) -> float:
        """The minimum time to measure it."""
        return _MIN_STEPS * self.step_seconds

    @property
    def memory_description(self) -> str:
        free = "" if self.free_bytes is None else f", and {format_bytes(self.free_bytes)} are free"
        return f"needs about {format_bytes(self.memory_bytes)} of memory{free}"


def free_memory_bytes() -> float:
    return float(psutil.virtual_memory().available)


def estimate_needs(sweep: Sweep, profile: ModelProfile, workers: int, batch: int) -> ResourceNeeds:
    """Estimate the needs of a run. A synthetic GPU computes nothing and stores no activations."""
    model_bytes = float(
        # before it is divided, each rank holds the whole model
        STRATEGIES[
            DEFAULT_STRATEGY if sweep.strategy in DIVIDING_STRATEGIES else sweep.strategy
        ].memory_bytes(
            sweep.workload,
            profile,
            sweep.remedy,
            batch_per_gpu=np.array(0.0 if sweep.gpu else float(batch)),
            gpus=np.array(float(workers)),
        )
    )
    bucket_bytes = profile.gradient_bytes if workers > 1 else 0.0
    worker_bytes = model_bytes + bucket_bytes
    step_seconds = _estimate_step_seconds(sweep, profile, batch)
    if sweep.device == "cuda":
        gpu = _find_local_gpu(sweep)
        return ResourceNeeds(worker_bytes, None if gpu is None else gpu.memory_bytes, step_seconds)
    free = free_memory_bytes() if sweep.place.on_this_machine else None
    process_bytes = worker_bytes - FRAMEWORK_BYTES + _PROCESS_BYTES  # CPU ranks don't use CUDA
    return ResourceNeeds(workers * process_bytes, free, step_seconds)


def _estimate_step_seconds(sweep: Sweep, profile: ModelProfile, batch: int) -> float:
    if sweep.synthetic is not None:
        return sweep.synthetic.step_seconds(batch) * sweep.place.dilation
    if sweep.device == "cuda":
        gpu = _find_local_gpu(sweep)
        if gpu is None:
            return 0.0
        line = estimate_compute_line(sweep.workload, profile, gpu)
        return line.fixed_seconds + batch * line.seconds_per_sample
    cores = len(sweep.cores_by_worker[0])
    return _PASSES * profile.forward_flops * batch / (_CORE_FLOPS * max(1, cores))


def _find_local_gpu(sweep: Sweep) -> Gpu | None:
    if not sweep.place.on_this_machine or not sweep.testbed.gpus:
        return None
    return find_catalog_gpu(sweep.testbed.gpus[0])


def check_fits(sweep: Sweep, profile: ModelProfile) -> None:
    """Raise UserMistake if a point would not fit into memory, and suggest one that does."""
    for point in sweep.points:
        needs = estimate_needs(sweep, profile, point.workers, point.batch_per_worker)
        if not needs.fits:
            raise UserMistake(
                f"{sweep.workload.name} with {format_count(point.workers, 'worker')} at a batch of "
                f"{point.batch_per_worker} {needs.memory_description}; "
                + _suggest_smaller(sweep, profile, point.workers, point.batch_per_worker)
            )


def _suggest_smaller(sweep: Sweep, profile: ModelProfile, workers: int, batch: int) -> str:
    smaller = [2**n for n in range(batch.bit_length() - 1, -1, -1)]
    for fewer in sorted({workers, 1}, reverse=True):
        for size in smaller:
            if estimate_needs(sweep, profile, fewer, size).fits:
                return f"{format_count(fewer, 'worker')} at a batch of {size} would fit"
    return "not even one worker at a batch of 1 would fit; use gpuyard predict for larger machines"
