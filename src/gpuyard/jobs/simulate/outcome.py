"""The outcome of a simulation: when each job started and ended, what it used, and totals."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard.jobs.simulate.trace import Trace
from gpuyard.policies.views import Pool

_Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GpuInterval:
    """A period in which a job holds a fixed number of GPUs: one bar of a Gantt chart."""

    job: int  # index in the trace
    gpus: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class SimulationOutcome:
    """One trace under one policy on one pool; arrays are in the order of the trace."""

    policy: str
    trace: Trace
    pool: Pool
    started_s: _Seconds
    ended_s: _Seconds
    gpu_seconds: _Seconds  # held by each job, including restarts
    restarts: npt.NDArray[np.int64]
    intervals: tuple[GpuInterval, ...]
    decisions: int
    failures: int = 0  # of machines, that hit a job
    lost_gpu_seconds: float = 0.0  # restarts and work since the last checkpoint

    @cached_property
    def submitted_s(self) -> _Seconds:
        return np.array([job.submitted_s for job in self.trace.jobs])

    @cached_property
    def completion_seconds(self) -> _Seconds:
        """Seconds from submission to end."""
        return self.ended_s - self.submitted_s

    @property
    def makespan_seconds(self) -> float:
        """Seconds from the first submission to the last end."""
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
    def utilization(self) -> float:
        """The share of all GPUs' time, from the first submission to the last end, in which jobs held them."""
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
            "utilization": self.utilization,
            "gpu_hours": self.gpu_hours,
            "restarts": int(self.restarts.sum()),
            "failures": self.failures,
            "lost_gpu_hours": self.lost_gpu_seconds / 3600,
            "decisions": self.decisions,
        }
