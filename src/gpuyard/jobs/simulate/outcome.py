"""What came of a simulation: when each job started and ended, what it used, and what that means for all."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard.jobs.policies.base import Pool
from gpuyard.jobs.simulate.trace import Trace

_Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stay:
    """Some job on some number of GPUs for some time: one bar of a Gantt chart."""

    job: int  # its place in the trace
    gpus: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class SimulationOutcome:
    """One trace under one policy on one pool; times by job in the order of the trace."""

    policy: str
    trace: Trace
    pool: Pool
    started_s: _Seconds
    ended_s: _Seconds
    gpu_seconds: _Seconds  # held, restarts included
    restarts: npt.NDArray[np.int64]
    stays: tuple[Stay, ...]
    decisions: int

    @cached_property
    def submitted_s(self) -> _Seconds:
        return np.array([job.submitted_s for job in self.trace.jobs])

    @cached_property
    def completion_seconds(self) -> _Seconds:
        """From submission to end."""
        return self.ended_s - self.submitted_s

    @property
    def makespan_seconds(self) -> float:
        """From the first submission to the last end."""
        return float(self.ended_s.max() - self.submitted_s.min())

    @property
    def deadlines(self) -> int:
        return sum(job.deadline_s is not None for job in self.trace.jobs)

    @property
    def deadlines_met(self) -> int:
        return sum(
            job.deadline_s is not None and ended <= job.deadline_s
            for job, ended in zip(self.trace.jobs, self.ended_s.tolist(), strict=True)
        )

    @property
    def gpu_hours(self) -> float:
        return float(self.gpu_seconds.sum()) / 3600

    @property
    def utilisation(self) -> float:
        """Share of all GPUs' time, from the first submission to the last end, in which a job held them."""
        return float(self.gpu_seconds.sum()) / (self.pool.gpus * self.makespan_seconds)

    def as_json(self) -> dict[str, object]:
        completion = self.completion_seconds
        return {
            "policy": self.policy,
            "jobs": len(self.trace.jobs),
            "mean_completion_seconds": float(completion.mean()),
            "median_completion_seconds": float(np.median(completion)),
            "p99_completion_seconds": float(np.percentile(completion, 99)),
            "mean_wait_seconds": float((self.started_s - self.submitted_s).mean()),
            "makespan_seconds": self.makespan_seconds,
            "deadlines": self.deadlines,
            "deadlines_met": self.deadlines_met,
            "utilisation": self.utilisation,
            "gpu_hours": self.gpu_hours,
            "restarts": int(self.restarts.sum()),
            "decisions": self.decisions,
        }
