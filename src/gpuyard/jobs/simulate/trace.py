"""A trace: jobs with the time of their submission, what they asked for and what they have to do."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.jobs.policies.base import Allocation, JobView, Pool
from gpuyard.jobs.simulate.work import Work, packed_shape


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as it was, or would be, submitted; times are seconds from the trace's beginning."""

    id: str
    submitted_s: float
    work: Work
    asked_gpus: int = 1
    least_gpus: int = 1
    most_gpus: int = 1
    user: str = ""
    group: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    priority: int = 0
    elastic: bool = False
    restart_s: float = 0.0
    waited_s: float | None = None
    """In reality, where the trace is of what ran once."""
    workload: str = ""
    """What it trains, where the trace says so."""

    def view(
        self,
        done: float,
        allocation: Allocation | None,
        started_s: float | None,
        attained_gpu_s: float,
        *,
        starting_s: float = 0.0,
    ) -> JobView:
        """As policies see it at some time."""
        return JobView(
            self.id, self.work.curve(done), self.work.total - done, self.asked_gpus, self.least_gpus,
            self.most_gpus, self.submitted_s, self.user, self.group, self.deadline_s, self.weight,
            self.priority, self.elastic, self.restart_s, allocation, started_s, attained_gpu_s,
            starting_s=starting_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their submission."""

    name: str
    jobs: tuple[TraceJob, ...]
    pool: Pool | None = None  # the machines that they ran on, where the trace's source says so

    @classmethod
    def of(cls, path: Path, jobs: Iterable[TraceJob], pool: Pool | None = None) -> "Trace":
        """Those of a file, in the order of their submission."""
        return cls(path.stem, tuple(sorted(jobs, key=lambda job: job.submitted_s)), pool)

    def fitting(self, pool: Pool) -> "Trace":
        """As it is asked for on these machines: who asks for more than there are asks for all; who needs more is a
        mistake."""
        for job in self.jobs:
            if job.least_gpus > pool.gpus:
                raise UserMistake(
                    f"{self.name}: job {job.id!r} needs {job.least_gpus} GPUs, the cluster has {pool.gpus}"
                )
        if all(job.asked_gpus <= pool.gpus for job in self.jobs):
            return self
        most = pool.gpus
        jobs = [replace(job, asked_gpus=min(job.asked_gpus, most)) for job in self.jobs]
        return replace(self, jobs=tuple(jobs))

    def with_deadlines(self, low: float, high: float, pool: Pool) -> "Trace":
        """Each job is due after `low` to `high` times as long as it takes alone on the GPUs asked for; by chance, but
        the same for the same trace."""
        chance, machine = random.Random(self.name), max(pool.gpus_by_machine)
        jobs = []
        for job in self.fitting(pool).jobs:
            alone_s = job.restart_s + job.work.seconds(0.0, packed_shape(job.asked_gpus, machine))
            due_s = job.submitted_s + chance.uniform(low, high) * alone_s
            jobs.append(replace(job, deadline_s=due_s))
        return replace(self, jobs=tuple(jobs))

    def due_at(self, horizon_s: float) -> "Trace":
        """All that are submitted before that moment are due at it, and no others."""
        jobs = [
            replace(job, deadline_s=horizon_s if job.submitted_s < horizon_s else None)
            for job in self.jobs
        ]
        return replace(self, jobs=tuple(jobs))
