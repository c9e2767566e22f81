"""From what a job reported to the records that are kept of it."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from gpuyard import __version__
from gpuyard.catalog import ModelProfile
from gpuyard.measure.credible import MOST_SPREAD, faster_than_possible
from gpuyard.measure.job_runs.records import JobRun, JobTestbed, JobWindow
from gpuyard.measure.record import key_of, made_now
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.statistics import student_t_quantile
from gpuyard.specs import Workload
from gpuyard.steps.windows import StepWindow
from gpuyard.units import format_share
from gpuyard.workloads.profiles import catalog_profile

MOST_WINDOWS = 200
"""That are kept of a run; neighbours of longer ones are joined."""
_LEAST_STEPS = 20
_LATEST = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def job_runs(
    windows: Sequence[StepWindow],
    workload: Workload,
    *,
    job: str = "",
    handle: str = "",
    testbed: JobTestbed | None = None,
    profile: ModelProfile | None = None,
) -> list[JobRun]:
    """One for each start that got beyond its warm-up, in their order.

    `testbed` is where a job ran that does not say so itself. A model of the user's own is not run for its profile.
    """
    starts: dict[tuple[str, int, int], list[StepWindow]] = {}
    for window in windows:
        if window.samples > 0:
            starts.setdefault((window.start, window.gpus, window.nodes), []).append(window)
    made = (
        _run(members, workload, job=job, handle=handle, testbed=testbed, profile=profile)
        for members in starts.values()
    )
    return [run for run in made if run is not None]


def keep(store: ResultsStore, runs: Sequence[JobRun]) -> list[JobRun]:
    """Add those that the store does not have yet, and say which these were."""
    new = [run for run in runs if store.latest(JobRun, run.key) is None]
    for run in new:
        store.add(run)
    return new


def _run(
    windows: Sequence[StepWindow],
    workload: Workload,
    *,
    job: str,
    handle: str,
    testbed: JobTestbed | None,
    profile: ModelProfile | None,
) -> JobRun | None:
    steady = [window for window in windows if not window.warmup]
    if not steady:
        return None
    last = steady[-1]
    steps, samples = sum(w.steps for w in steady), sum(w.samples for w in steady)
    seconds = sum(w.seconds for w in steady)
    step_seconds = _weighted_median([(w.step_seconds, w.steps) for w in steady])
    rate = samples / steps / step_seconds
    spread = _spread([w.samples_per_second for w in steady])
    said = next((w.testbed for w in windows if w.testbed is not None), None)
    where = JobTestbed(**said) if said else testbed or _unknown()
    key = {"job": job or last.job, "start": last.start, "gpus": last.gpus, "nodes": last.nodes}
    if not last.start:  # of a program that reports by itself; its figures tell one from another
        key["windows"] = [(w.steps, w.samples, w.seconds, w.at) for w in windows]
    warming = [window for window in windows if window.warmup]
    run = JobRun(
        **_made(key_of({"kind": "job", "workload": workload.name, **key}), last.at),
        workload=workload.name,
        spec=workload.model_dump(mode="json"),
        job=job or last.job,
        handle=handle,
        gpus=last.gpus,
        nodes=last.nodes,
        workers=last.workers,
        batch_per_worker=max(1, round(samples / steps / last.workers)),
        device="cuda" if where.gpus else "cpu",
        samples_per_second=rate,
        low=rate * max(0.0, 1 - spread),
        high=rate * (1 + spread),
        clock_samples_per_second=samples / seconds,
        step_seconds=step_seconds,
        steps=steps,
        seconds=seconds,
        warmup_steps=sum(w.steps for w in warming),
        warmup_seconds=sum(w.seconds for w in warming),
        loss_last=last.loss,
        windows=_joined(steady),
        profile=None if catalog_profile(workload) else profile,
        provenance=where,
    )
    return run.model_copy(update={"doubt": doubt_of(run, workload)})


def _made(key: str, at: float | None) -> dict[str, str]:
    """A run is of when it ended, not of when somebody came to read its log."""
    made = made_now(key)
    if at is not None and 0 < at < _LATEST:
        ended = datetime.fromtimestamp(at, UTC)
        made["created_at"] = ended.isoformat(timespec="milliseconds")
    return made


def doubt_of(run: JobRun, workload: Workload) -> str | None:
    """Why it is not credible; None: nothing speaks against it."""
    if run.steps < _LEAST_STEPS:
        return f"only {run.steps} steps after it had warmed up"
    rates = sorted(window.samples_per_second for window in run.windows)
    if len(rates) >= 4:  # half of the windows between these two
        low, high = rates[len(rates) // 4], rates[-1 - len(rates) // 4]
        if high / low - 1 > MOST_SPREAD:
            return f"windows of the same work differ by {format_share(high / low - 1)}"
    return faster_than_possible(
        run.samples_per_second / max(run.workers, run.gpus if run.device == "cuda" else 1),
        catalog_profile(workload) or run.profile,
        precision=workload.precision or "fp32",
        gpu=run.provenance.gpus[0] if run.provenance.gpus else None,
        threads=run.provenance.threads_per_worker,
    )


def _weighted_median(values: Sequence[tuple[float, int]]) -> float:
    half, counted = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        counted += weight
        if counted >= half:
            return value
    raise ValueError("no values")


def _spread(rates: Sequence[float]) -> float:
    """Half of the 95 % interval around the middle, relative; by the windows' median deviation, 1.4826 of which is a σ."""
    if len(rates) < 2:
        return 1.0
    middle = median(rates)
    sigma = 1.4826 * median(abs(rate - middle) for rate in rates) / middle
    return student_t_quantile(len(rates) - 1) * sigma / math.sqrt(len(rates))


def _joined(windows: Sequence[StepWindow]) -> tuple[JobWindow, ...]:
    each = -(-len(windows) // MOST_WINDOWS)
    groups = [windows[i : i + each] for i in range(0, len(windows), each)]
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


def _unknown() -> JobTestbed:
    no = "unknown"
    return JobTestbed(
        gpuyard=__version__, torch=no, python=no, os=no, kernel=no, host=no, cpu_model=no,
        cores=0, memory_bytes=0, gpus=(),
    )  # fmt: skip
