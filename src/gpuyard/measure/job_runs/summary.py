"""Summarizes the windows that a job reported into one record per start."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from gpuyard.measure.job_runs.records import JobRun, JobTestbed, JobWindow
from gpuyard.measure.record import create_identity, hash_key
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.statistics import student_t_quantile
from gpuyard.measure.validity import MAX_SPREAD, find_impossible_speed
from gpuyard.reporting.windows import (
    StepWindow,
    median_checkpoint_seconds,
    median_startup_seconds,
)
from gpuyard.specs import Workload
from gpuyard.units import format_share
from gpuyard.version import __version__
from gpuyard.workloads.profiles import catalog_profile

MAX_WINDOWS = 200
"""The windows stored per run; longer runs have adjacent windows merged."""
_MIN_STEPS = 20
_MAX_TIMESTAMP = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def build_job_runs(
    windows: Sequence[StepWindow],
    workload: Workload,
    *,
    job: str = "",
    handle: str = "",
) -> list[JobRun]:
    """Build one record for each start that got beyond its warm-up, in order."""
    starts: dict[tuple[str, int, int], list[StepWindow]] = {}
    for window in windows:
        if window.samples > 0:
            starts.setdefault((window.start, window.gpus, window.nodes), []).append(window)
    runs = (_build_job_run(group, workload, job=job, handle=handle) for group in starts.values())
    return [run for run in runs if run is not None]


def add_new_runs(store: ResultsStore, runs: Sequence[JobRun]) -> list[JobRun]:
    """Add the runs that the store lacks, and return them."""
    new = [run for run in runs if store.latest(JobRun, run.key) is None]
    for run in new:
        store.add(run)
    return new


def _build_job_run(
    windows: Sequence[StepWindow],
    workload: Workload,
    *,
    job: str,
    handle: str,
) -> JobRun | None:
    steady = [window for window in windows if not window.warmup]
    if not steady:
        return None
    last = steady[-1]
    steps, samples = sum(w.steps for w in steady), sum(w.samples for w in steady)
    seconds = sum(w.seconds for w in steady)
    step_seconds = _weighted_median([(w.step_seconds, w.steps) for w in steady])
    rate = samples / steps / step_seconds
    spread = _estimate_spread([w.samples_per_second for w in steady])
    reported = next((w.testbed for w in windows if w.testbed is not None), None)
    provenance = JobTestbed(**reported) if reported else _unknown_testbed()
    key = {"job": job or last.job, "start": last.start, "gpus": last.gpus, "nodes": last.nodes}
    if (
        not last.start
    ):  # reports that gpuyard did not write have no start id; their figures identify them
        key["windows"] = [(w.steps, w.samples, w.seconds, w.at) for w in windows]
    warmup = [window for window in windows if window.warmup]
    run = JobRun(
        **_identify(hash_key({"kind": "job", "workload": workload.name, **key}), last.at),
        workload=workload.name,
        spec=workload.model_dump(mode="json"),
        job=job or last.job,
        handle=handle,
        gpus=last.gpus,
        nodes=last.nodes,
        workers=last.workers,
        batch_per_worker=max(1, round(samples / steps / last.workers)),
        device="cuda" if provenance.gpus else "cpu",
        samples_per_second=rate,
        low=rate * max(0.0, 1 - spread),
        high=rate * (1 + spread),
        clock_samples_per_second=samples / seconds,
        step_seconds=step_seconds,
        steps=steps,
        seconds=seconds,
        warmup_steps=sum(w.steps for w in warmup),
        warmup_seconds=sum(w.seconds for w in warmup),
        loss_last=last.loss,
        checkpoint_seconds=median_checkpoint_seconds(windows),
        startup_seconds=median_startup_seconds(windows),
        windows=_merge_windows(steady),
        provenance=provenance,
    )
    return run.model_copy(update={"doubt": find_doubt(run, workload)})


def _identify(key: str, ended: float | None) -> dict[str, str]:
    """Return the id, key, and date of a run; its date is when it ended, not when its log was read."""
    identity = create_identity(key)
    if ended is not None and 0 < ended < _MAX_TIMESTAMP:
        date = datetime.fromtimestamp(ended, UTC)
        identity["created_at"] = date.isoformat(timespec="milliseconds")
    return identity


def find_doubt(run: JobRun, workload: Workload) -> str | None:
    """Return why a run is doubtful, or None if it is valid."""
    if run.steps < _MIN_STEPS:
        return f"only {run.steps} steps after warm-up"
    rates = sorted(window.samples_per_second for window in run.windows)
    if len(rates) >= 4:  # half of the windows are between these two quartiles
        low, high = rates[len(rates) // 4], rates[-1 - len(rates) // 4]
        if high / low - 1 > MAX_SPREAD:
            return f"windows of the same work differ by {format_share(high / low - 1)}"
    return find_impossible_speed(
        run.samples_per_second / max(run.workers, run.gpus if run.device == "cuda" else 1),
        catalog_profile(workload) or run.profile,
        precision=workload.precision or "fp32",
        gpu=run.provenance.gpus[0] if run.provenance.gpus else None,
        threads=run.provenance.threads_per_worker,
    )


def _weighted_median(values: Sequence[tuple[float, int]]) -> float:
    half = sum(weight for _, weight in values) / 2
    cumulative_weight = 0
    for value, weight in sorted(values):
        cumulative_weight += weight
        if cumulative_weight >= half:
            return value
    raise ValueError("no values")


def _estimate_spread(rates: Sequence[float]) -> float:
    """Estimate half the 95% confidence interval, relative to the median.

    The standard deviation is estimated as 1.4826 times the median absolute deviation of the windows.
    """
    if len(rates) < 2:
        return 1.0
    center = median(rates)
    sigma = 1.4826 * median(abs(rate - center) for rate in rates) / center
    return student_t_quantile(len(rates) - 1) * sigma / math.sqrt(len(rates))


def _merge_windows(windows: Sequence[StepWindow]) -> tuple[JobWindow, ...]:
    group_size = -(-len(windows) // MAX_WINDOWS)
    groups = [windows[i : i + group_size] for i in range(0, len(windows), group_size)]
    return tuple(
        JobWindow(
            steps=sum(w.steps for w in group),
            samples=sum(w.samples for w in group),
            seconds=sum(w.seconds for w in group),
            step_seconds=_weighted_median([(w.step_seconds, w.steps) for w in group]),
            at=group[-1].at,
            number=group[-1].number,
            loss=group[-1].loss,
        )
        for group in groups
    )


def _unknown_testbed() -> JobTestbed:
    names = ("torch", "python", "os", "kernel", "host", "cpu_model")
    return JobTestbed(
        gpuyard=__version__,
        **dict.fromkeys(names, "unknown"),
        cores=0,
        memory_bytes=0,
        gpus=(),
    )
