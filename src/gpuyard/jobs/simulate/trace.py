"""A trace: jobs with their submission times, requested GPUs, and work."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.jobs.simulate.work import Work, pack_gpus
from gpuyard.policies.views import Allocation, JobView, Pool


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace; times are in seconds from the trace's beginning."""

    id: str
    submitted_s: float
    work: Work
    requested_gpus: int = 1
    min_gpus: int = 1
    max_gpus: int = 1
    user: str = ""
    group: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    priority: int = 0
    elastic: bool = False
    restart_s: float = 0.0
    recorded_wait_s: float | None = None
    """How long the job waited in reality, if the trace is a history."""
    workload: str = ""
    """The workload that it trains, if the trace names it."""
    score: float | None = None
    """How good its result is so far (higher is better), if it has reported any."""

    def view(
        self,
        done: float,
        allocation: Allocation | None,
        started_s: float | None,
        attained_gpu_s: float,
        *,
        startup_s: float = 0.0,
    ) -> JobView:
        """Return the job as policies see it at some time."""
        return JobView(
            self.id, self.work.curve(done), self.work.total - done, self.requested_gpus, self.min_gpus,
            self.max_gpus, self.submitted_s, self.user, self.group, self.deadline_s, self.weight,
            self.priority, self.elastic, self.restart_s, allocation, started_s, attained_gpu_s,
            self.score, startup_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission."""

    name: str
    jobs: tuple[TraceJob, ...]
    pool: Pool | None = None  # the machines that they ran on, if known

    @classmethod
    def from_jobs(cls, path: Path, jobs: Iterable[TraceJob], pool: Pool | None = None) -> "Trace":
        """Create a trace from a file's jobs, sorted by submission."""
        return cls(path.stem, tuple(sorted(jobs, key=lambda job: job.submitted_s)), pool)

    def fit_to(self, pool: Pool) -> "Trace":
        """Limit each request to the pool's GPUs; raise UserMistake if a job's minimum exceeds them."""
        for job in self.jobs:
            if job.min_gpus > pool.gpus:
                raise UserMistake(
                    f"{self.name}: job {job.id!r} needs {job.min_gpus} GPUs, but the cluster has {pool.gpus}"
                )
        if all(job.requested_gpus <= pool.gpus for job in self.jobs):
            return self
        jobs = [
            replace(job, requested_gpus=min(job.requested_gpus, pool.gpus)) for job in self.jobs
        ]
        return replace(self, jobs=tuple(jobs))

    def add_deadlines(self, low: float, high: float, pool: Pool) -> "Trace":
        """Invent deadlines: each job is due after `low` to `high` times its run time alone on the requested GPUs.

        They are random, but always the same for the same trace.
        """
        rng, per_machine = random.Random(self.name), max(pool.gpus_by_machine)
        jobs = []
        for job in self.fit_to(pool).jobs:
            alone_s = job.restart_s + job.work.seconds(
                0.0, pack_gpus(job.requested_gpus, per_machine)
            )
            due_s = job.submitted_s + rng.uniform(low, high) * alone_s
            jobs.append(replace(job, deadline_s=due_s))
        return replace(self, jobs=tuple(jobs))

    def set_deadline(self, horizon_s: float) -> "Trace":
        """Make all jobs that are submitted before this time due at it; the others get no deadline."""
        jobs = [
            replace(job, deadline_s=horizon_s if job.submitted_s < horizon_s else None)
            for job in self.jobs
        ]
        return replace(self, jobs=tuple(jobs))
