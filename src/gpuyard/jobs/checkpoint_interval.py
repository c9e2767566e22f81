"""Propose a job's checkpoint interval from the times that its own starts reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gpuyard.economics.goodput import Goodput, compute_goodput
from gpuyard.economics.interruption_rates import find_failures
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.reporting.windows import StepWindow


@dataclass(frozen=True)
class CheckpointAdvice:
    """The best interval for a job, and the one that it uses."""

    goodput: Goodput
    every_seconds: float  # the job's own interval
    own_goodput: float

    def as_json(self) -> dict[str, Any]:
        return {
            **self.goodput.as_json(),
            "own_checkpoint_every_seconds": self.every_seconds,
            "own_goodput": self.own_goodput,
        }


def advise_checkpoints(windows: Sequence[StepWindow], *, gpus: int) -> CheckpointAdvice | None:
    """Return advice, or None if the job has not reported a checkpoint yet.

    A checkpoint takes the median of those reported. A restart takes the median startup of the job's processes.
    """
    written = sum(window.checkpoints for window in windows)
    if not written:
        return None
    seconds = median(
        window.checkpoint_seconds / window.checkpoints for window in windows if window.checkpoints
    )
    startups = [window.startup_seconds for window in windows if window.startup_seconds is not None]
    trained = sum(window.seconds - window.checkpoint_seconds for window in windows)
    names = [name for window in windows if window.testbed for name in window.testbed["gpus"]]
    mean_time = find_failures(find_catalog_gpu(names[-1]) if names else None).divide(gpus)
    times = {
        "checkpoint_seconds": max(seconds, 1e-3),
        "restart_seconds": median(startups) if startups else 0.0,
    }
    every = max(trained / written, 1e-3)
    best = compute_goodput(mean_time, **times)
    own = compute_goodput(mean_time, **times, interval_seconds=every)
    return CheckpointAdvice(best, every, own.share)
