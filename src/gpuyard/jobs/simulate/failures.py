"""Failures of machines in a simulation: when each machine fails, and what a job that runs on it loses.

The failures of a machine depend only on the seed, so all policies face the same ones. A job that fails keeps its GPUs, as
with a spare machine: it restarts, and works again from its last checkpoint.
"""

import bisect
import math
import random
from dataclasses import dataclass, field

from gpuyard.jobs.simulate.work import GpusByMachine, Work
from gpuyard.policies.views import Allocation, Pool

CHECKPOINT_EVERY_SECONDS, RESTART_SECONDS = 1800.0, 600.0


@dataclass
class FailureModel:
    """Random failures with a constant rate per GPU."""

    gpu_hours: float  # mean time between two failures of one GPU
    seed: int = 0
    checkpoint_every_s: float = CHECKPOINT_EVERY_SECONDS
    restart_s: float = RESTART_SECONDS
    _times: dict[int, list[float]] = field(default_factory=dict)
    _randoms: dict[int, random.Random] = field(default_factory=dict)

    def next_failure(self, allocation: Allocation, pool: Pool, after_s: float) -> float:
        """Return when one of these machines fails next."""
        return min(
            (self._next_of(machine, pool.gpus_by_machine[machine], after_s) for machine, _ in allocation),
            default=math.inf,
        )  # fmt: skip

    def find_saved(
        self, work: Work, done: float, shape: GpusByMachine, racks: int, worked_s: float
    ) -> float:
        """Return the work in the last checkpoint of a job that has worked this long since its start."""
        saved_s = math.floor(max(0.0, worked_s) / self.checkpoint_every_s) * self.checkpoint_every_s
        return work.after(done, shape, saved_s, racks)

    def _next_of(self, machine: int, gpus: int, after_s: float) -> float:
        times = self._times.setdefault(machine, [])
        rng = self._randoms.setdefault(machine, random.Random(f"{self.seed}/{machine}"))
        mean_s = 3600 * self.gpu_hours / max(gpus, 1)
        while not times or times[-1] <= after_s:
            times.append((times[-1] if times else 0.0) + rng.expovariate(1 / mean_s))
        return times[bisect.bisect_right(times, after_s)]
