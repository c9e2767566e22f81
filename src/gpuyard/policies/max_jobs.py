"""Finish as many jobs as possible, by weight, by their deadlines or a common horizon."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.policies.base import Policy
from gpuyard.policies.exact import find_best_packing
from gpuyard.policies.packing import (
    TOLERANCE_S,
    BusyGpus,
    DeadlinePacking,
    DeadlineTask,
    FreeGpuTimeline,
    Mode,
    PlannedStart,
    pack,
)
from gpuyard.policies.views import JobView, Pool

HORIZON_S = 24 * 3600.0
_MAX_MODES = 12
_MAX_WASTE = 2.0  # how many times the GPU-seconds of the thriftiest mode a job may use on idle GPUs
_MAX_EXACT = 10  # jobs for which the exact search is tried
_MAX_PLANNED = 100  # jobs in one plan; those behind them rarely change what starts now


@dataclass(frozen=True)
class DeadlinePlan:
    """The jobs that end in time, and planned starts."""

    packing: DeadlinePacking
    starts: Mapping[str, PlannedStart]
    """Starts of the jobs that end in time, and of late jobs that start now."""
    kept: Mapping[str, int]
    """GPUs of running jobs that cannot be stopped."""


class MaxJobs(Policy):
    """Plans all jobs to their ends and starts those that the plan starts now.

    Up to ten jobs are planned by an exact search if SciPy is installed. Otherwise several greedy orders are tried, and a
    linear program bounds the distance from the optimum. A job that can no longer be in time runs on GPUs that the others
    leave, without delaying them.
    """

    name = "max-jobs"
    summary = "as many jobs as possible, by weight, done by their deadlines or within 24 h"
    round_s = None
    only_on_change = True  # a plan starts jobs when others end

    def __init__(self, horizon_s: float = HORIZON_S, max_steps: int = 20_000) -> None:
        self.horizon_s = horizon_s
        self.max_steps = max_steps

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        plan = self.plan(jobs, pool, now_s)
        starting = {id_: s.mode.gpus for id_, s in plan.starts.items() if s.at_s <= TOLERANCE_S}
        return {**plan.kept, **starting}

    def withholds_for(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> str | None:
        """Return the next job with a deadline that the plan starts later, because it needs more GPUs than are idle."""
        idle = pool.gpus - sum(job.gpus for job in jobs)
        due = {job.id for job in jobs if job.deadline_s is not None and not job.running}
        later = [
            (start.at_s, id_)
            for id_, start in (self.plan(jobs, pool, now_s).starts.items() if due else ())
            if start.at_s > TOLERANCE_S and start.mode.gpus > idle and id_ in due
        ]
        return min(later)[1] if later else None

    def plan(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> DeadlinePlan:
        """Plan all jobs known now; later jobs change the plan."""
        fixed = [job for job in jobs if job.running and not job.elastic]
        busy = [BusyGpus(job.gpus, job.remaining_seconds(job.gpus)) for job in fixed]
        kept = {job.id: job.gpus for job in fixed}
        movable = self._select_urgent([job for job in jobs if job.id not in kept], now_s)
        tasks = [self._create_task(job, pool.gpus, now_s) for job in movable]
        packing = pack(tasks, pool.gpus, busy)
        if not packing.proven and len(tasks) <= _MAX_EXACT and _has_scipy():
            packing = find_best_packing(packing, tasks, pool.gpus, busy, max_steps=self.max_steps)
        free = FreeGpuTimeline(pool.gpus, busy)
        for start in packing.starts.values():
            free.reserve(start.at_s, start.mode.gpus, start.mode.seconds)
        starts = {**packing.starts, **_start_late_tasks(tasks, packing, free)}
        _speed_up(starts, tasks, free)
        return DeadlinePlan(packing, starts, kept)

    def _select_urgent(self, jobs: Sequence[JobView], now_s: float) -> Sequence[JobView]:
        """Return running jobs and, of many waiting ones, those with the least slack and the least work by weight."""
        if len(jobs) <= _MAX_PLANNED:
            return jobs
        seconds = {job.id: job.remaining_seconds(job.max_gpus) for job in jobs}

        def slack(job: JobView) -> tuple[bool, float]:
            due_s = self.horizon_s if job.deadline_s is None else job.deadline_s - now_s
            return seconds[job.id] > due_s, due_s - seconds[job.id]  # jobs that are late come last

        def work(job: JobView) -> float:
            return job.max_gpus * seconds[job.id] / job.weight if job.weight > 0 else float("inf")

        urgent = {job.id for job in jobs if job.running}
        for key in (slack, work):
            urgent |= {job.id for job in sorted(jobs, key=key)[: _MAX_PLANNED // 2]}
        return [job for job in jobs if job.id in urgent]

    def _create_task(self, job: JobView, gpus: int, now_s: float) -> DeadlineTask:
        due_s = self.horizon_s if job.deadline_s is None else job.deadline_s - now_s
        counts = np.arange(job.min_gpus, min(job.max_gpus, gpus) + 1)
        speeds = job.curve.packed[np.minimum(counts, job.curve.max_gpus)]
        # a mode is useful if it is faster than all modes with fewer GPUs
        before = np.concatenate(([0.0], np.maximum.accumulate(speeds)[:-1]))
        counts, speeds = counts[speeds > before], speeds[speeds > before]
        seconds = job.restart_s + job.remaining_work / speeds
        complete = len(counts) <= _MAX_MODES
        if not complete:
            in_time = np.flatnonzero(seconds <= due_s)
            thrifty = in_time[np.argmin((counts * seconds)[in_time])] if len(in_time) else 0
            spread = np.round(np.geomspace(1, len(counts), _MAX_MODES)).astype(int) - 1
            kept = np.unique([*spread, thrifty])
            counts, seconds = counts[kept], seconds[kept]
        modes = [Mode(int(g), float(s)) for g, s in zip(counts, seconds, strict=True)]
        if job.running:
            modes.append(Mode(job.gpus, job.remaining_seconds(job.gpus), now_only=True))
        return DeadlineTask(job.id, due_s, tuple(modes), job.weight, complete)


def _start_late_tasks(
    tasks: Iterable[DeadlineTask], packing: DeadlinePacking, free: FreeGpuTimeline
) -> dict[str, PlannedStart]:
    """Start tasks that cannot be in time on GPUs that are free now, the smallest first."""
    late = [task for task in tasks if task.id not in packing.starts and task.modes]
    starts = {}
    for task in sorted(late, key=lambda task: min(mode.gpu_seconds for mode in task.modes)):
        if free.free_now <= 0:
            break
        for mode in _thrifty_first(task):
            if mode.gpus <= free.free_now and free.earliest(mode) <= TOLERANCE_S:
                free.reserve(0.0, mode.gpus, mode.seconds)
                starts[task.id] = PlannedStart(0.0, mode)
                break
    return starts


def _speed_up(
    starts: dict[str, PlannedStart], tasks: Iterable[DeadlineTask], free: FreeGpuTimeline
) -> None:
    """Use GPUs that would be idle now to speed up jobs, without changing the plan of the others."""
    by_id = {task.id: task for task in tasks}
    for id_, start in sorted(starts.items(), key=lambda item: item[1].at_s):
        if free.free_now <= 0:
            break
        free.reserve(start.at_s, -start.mode.gpus, start.mode.seconds)
        modes = _thrifty_first(by_id[id_])
        max_gpu_seconds = _MAX_WASTE * modes[0].gpu_seconds
        faster = min(
            (PlannedStart(at_s, mode) for mode in modes if mode.gpu_seconds <= max_gpu_seconds
             and (at_s := free.earliest(mode)) < float("inf")),
            key=lambda other: (other.end_s, other.mode.gpus),
            default=start,
        )  # fmt: skip
        chosen = faster if faster.end_s < start.end_s - TOLERANCE_S else start
        starts[id_] = chosen
        free.reserve(chosen.at_s, chosen.mode.gpus, chosen.mode.seconds)


def _thrifty_first(task: DeadlineTask) -> list[Mode]:
    without_deadline = replace(task, deadline_s=float("inf"))
    return list(without_deadline.restrict_to(2**31).modes)


def _has_scipy() -> bool:
    from importlib.util import find_spec

    return find_spec("scipy") is not None
