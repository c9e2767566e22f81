"""The most jobs, by weight, that end by their deadlines, or by a common horizon where they have none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.jobs.policies.base import JobView, Policy, Pool
from gpuyard.jobs.policies.exact import improve
from gpuyard.jobs.policies.packing import (
    LATE_S,
    BusyGpus,
    DeadlinePacking,
    DeadlineTask,
    FreeGpus,
    Mode,
    PlannedStart,
    pack,
)

HORIZON_S = 24 * 3600.0
_MOST_MODES = 12
_MOST_WASTE = (
    2.0  # GPU-seconds, compared with those of the thriftiest mode, that idle GPUs may be spent with
)
_MOST_EXACT = 10  # jobs for which a proof is tried


@dataclass(frozen=True)
class DeadlinePlan:
    """Who ends in time, and when everybody starts."""

    packing: DeadlinePacking
    starts: Mapping[str, PlannedStart]
    """Of those that end in time, and of those that are late and start now."""
    kept: Mapping[str, int]
    """GPUs of jobs that run and can't be stopped."""


class MaxJobs(Policy):
    """Plans all jobs to their ends and does what the plan starts now.

    Up to ten jobs are planned by an exact search where scipy is there; else several greedy orders are tried, and the
    bound of a linear program says how far from the best they can be. A job that can't be in time any more runs on
    what the others leave, and so that it delays none of them.
    """

    name = "max-jobs"
    summary = "as many jobs as possible, by weight, done by their deadlines or within 24 h"
    round_s = None
    only_on_change = True  # a plan starts jobs when others end

    def __init__(self, horizon_s: float = HORIZON_S, effort: int = 20_000) -> None:
        self.horizon_s = horizon_s
        self.effort = effort

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        plan = self.plan(jobs, pool, now_s)
        starting = {id_: s.mode.gpus for id_, s in plan.starts.items() if s.at_s <= LATE_S}
        return {**plan.kept, **starting}

    def plan(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> DeadlinePlan:
        """Of all that is known now; jobs that come later change it."""
        fixed = [job for job in jobs if job.running and not job.elastic]
        busy = [BusyGpus(job.gpus, job.seconds_left(job.gpus)) for job in fixed]
        kept = {job.id: job.gpus for job in fixed}
        tasks = [self._task(job, pool.gpus, now_s) for job in jobs if job.id not in kept]
        packing = pack(tasks, pool.gpus, busy)
        if not packing.proven and len(tasks) <= _MOST_EXACT and _has_scipy():
            packing = improve(packing, tasks, pool.gpus, busy, effort=self.effort)
        free = FreeGpus(pool.gpus, busy)
        for start in packing.starts.values():
            free.take(start.at_s, start.mode.gpus, start.mode.seconds)
        starts = {**packing.starts, **_late(tasks, packing, free)}
        _hasten(starts, tasks, free)
        return DeadlinePlan(packing, starts, kept)

    def _task(self, job: JobView, gpus: int, now_s: float) -> DeadlineTask:
        due_s = self.horizon_s if job.deadline_s is None else job.deadline_s - now_s
        counts = np.arange(job.least_gpus, min(job.most_gpus, gpus) + 1)
        speeds = job.curve.packed[np.minimum(counts, job.curve.most_gpus)]
        # a mode is of use if it is quicker than all narrower ones
        before = np.concatenate(([0.0], np.maximum.accumulate(speeds)[:-1]))
        counts, speeds = counts[speeds > before], speeds[speeds > before]
        seconds = job.restart_s + job.remaining_work / speeds
        complete = len(counts) <= _MOST_MODES
        if not complete:
            in_time = np.flatnonzero(seconds <= due_s)
            thrifty = in_time[np.argmin((counts * seconds)[in_time])] if len(in_time) else 0
            some = np.round(np.geomspace(1, len(counts), _MOST_MODES)).astype(int) - 1
            kept = np.unique([*some, thrifty])
            counts, seconds = counts[kept], seconds[kept]
        modes = [Mode(int(g), float(s)) for g, s in zip(counts, seconds, strict=True)]
        if job.running:
            modes.append(Mode(job.gpus, job.seconds_left(job.gpus), now_only=True))
        return DeadlineTask(job.id, due_s, tuple(modes), job.weight, complete)


def _late(
    tasks: Iterable[DeadlineTask], packing: DeadlinePacking, free: FreeGpus
) -> dict[str, PlannedStart]:
    """Those that can't be in time and start now all the same, the shortest first."""
    late = [task for task in tasks if task.id not in packing.starts and task.modes]
    starts = {}
    for task in sorted(late, key=lambda task: min(mode.gpu_seconds for mode in task.modes)):
        if free.free_now <= 0:
            break
        for mode in _thrifty_first(task):
            if mode.gpus <= free.free_now and free.earliest(mode) <= LATE_S:
                free.take(0.0, mode.gpus, mode.seconds)
                starts[task.id] = PlannedStart(0.0, mode)
                break
    return starts


def _hasten(starts: dict[str, PlannedStart], tasks: Iterable[DeadlineTask], free: FreeGpus) -> None:
    """GPUs that would be idle now make jobs quicker, where the plan of the others stays as it is."""
    by_id = {task.id: task for task in tasks}
    for id_, start in sorted(starts.items(), key=lambda item: item[1].at_s):
        if free.free_now <= 0:
            break
        free.take(start.at_s, -start.mode.gpus, start.mode.seconds)
        modes = _thrifty_first(by_id[id_])
        most = _MOST_WASTE * modes[0].gpu_seconds
        quicker = min(
            (PlannedStart(at_s, mode) for mode in modes if mode.gpu_seconds <= most
             and (at_s := free.earliest(mode)) < float("inf")),
            key=lambda other: (other.end_s, other.mode.gpus),
            default=start,
        )  # fmt: skip
        chosen = quicker if quicker.end_s < start.end_s - LATE_S else start
        starts[id_] = chosen
        free.take(chosen.at_s, chosen.mode.gpus, chosen.mode.seconds)


def _thrifty_first(task: DeadlineTask) -> list[Mode]:
    endless = replace(task, deadline_s=float("inf"))
    return list(endless.within(2**31).modes)


def _has_scipy() -> bool:
    from importlib.util import find_spec

    return find_spec("scipy") is not None
