"""Propose a job's checkpoint interval from the times that its own starts, or past runs of its workload, reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from gpuyard.economics.goodput import Goodput, compute_goodput
from gpuyard.economics.interruption_rates import find_failures
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.reporting.windows import (
    StepWindow,
    median_checkpoint_seconds,
    median_startup_seconds,
)

if TYPE_CHECKING:
    from gpuyard.measure.job_runs.records import JobRun


@dataclass(frozen=True)
class CheckpointAdvice:
    """The best interval for a job, and the one that it uses."""

    goodput: Goodput
    every_seconds: float | None  # the job's own interval; None before its first checkpoint
    own_goodput: float | None
    past_runs: int = 0
    """How many past runs gave the time of a checkpoint; 0 if the job reported its own."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.goodput.as_json(),
            "own_checkpoint_every_seconds": self.every_seconds,
            "own_goodput": self.own_goodput,
            "past_runs": self.past_runs,
        }


def advise_checkpoints(
    windows: Sequence[StepWindow], *, gpus: int, past: "Sequence[JobRun]" = ()
) -> CheckpointAdvice | None:
    """Return advice, or None if neither the job nor a past run has reported a checkpoint.

    A checkpoint takes the median of those that the job reported; before its first one, that of the past runs. A restart
    takes the median startup of the job's processes.
    """
    saving, startup = median_checkpoint_seconds(windows), median_startup_seconds(windows)
    earlier = [run for run in past if run.checkpoint_seconds is not None]
    if saving is None:
        if not earlier:
            return None
        saving = median(run.checkpoint_seconds or 0.0 for run in earlier)
    if startup is None:
        known = [run.startup_seconds for run in earlier if run.startup_seconds is not None]
        startup = median(known) if known else 0.0
    names = [name for window in windows if window.testbed for name in window.testbed["gpus"]]
    mean_time = find_failures(find_catalog_gpu(names[-1]) if names else None).divide(gpus)
    times = {"checkpoint_seconds": max(saving, 1e-3), "restart_seconds": startup}
    best = compute_goodput(mean_time, **times)
    written = sum(window.checkpoints for window in windows)
    if not written:
        return CheckpointAdvice(best, None, None, len(earlier))
    trained = sum(window.seconds - window.checkpoint_seconds for window in windows)
    every = max(trained / written, 1e-3)
    own = compute_goodput(mean_time, **times, interval_seconds=every)
    return CheckpointAdvice(best, every, own.share)
