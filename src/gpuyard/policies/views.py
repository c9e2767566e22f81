"""The input of policies: jobs and machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard.policies.curve import Curve

Allocation = tuple[tuple[int, int], ...]
"""A job's GPUs: (machine, number of its GPUs) pairs, ordered by machine."""
FreeGpus = npt.NDArray[np.int64]
"""Number of free GPUs by machine."""


def count_gpus(allocation: Allocation | None) -> int:
    return sum(gpus for _, gpus in allocation) if allocation else 0


@dataclass(frozen=True, slots=True)
class JobView:
    """A waiting or running job, as policies see it."""

    id: str
    curve: Curve
    remaining_work: float  # in the curve's unit
    requested_gpus: int = 1
    min_gpus: int = 1
    max_gpus: int = 1
    submitted_s: float = 0.0
    user: str = ""
    group: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    priority: int = 0  # higher comes first
    elastic: bool = False  # can be stopped and resumed with any number of GPUs from min to max
    restart_s: float = 0.0  # cost of stopping and starting again
    allocation: Allocation | None = None  # its current GPUs; None while it waits
    started_s: float | None = None  # first start
    attained_gpu_s: float = 0.0  # GPU-seconds so far
    score: float | None = None  # how good its result is so far; higher is better
    startup_s: float = 0.0  # from now until it works on its current GPUs

    @property
    def gpus(self) -> int:
        """The current number of GPUs."""
        return count_gpus(self.allocation)

    @property
    def running(self) -> bool:
        return self.allocation is not None

    def remaining_seconds(self, gpus: int, *, include_restart: bool = True) -> float:
        """Return the time to its end with that many GPUs; a change of the number costs a restart."""
        restart_s = self.restart_s if gpus != self.gpus else self.startup_s
        seconds = self.curve.seconds(self.remaining_work, gpus)
        return seconds + restart_s if include_restart else seconds


@dataclass(frozen=True)
class Pool:
    """Machines and their numbers of GPUs."""

    gpus_by_machine: tuple[int, ...]
    racks: tuple[int, ...] | None = None  # rack of each machine

    @classmethod
    def uniform(cls, machines: int, gpus: int, per_rack: int | None = None) -> "Pool":
        racks = tuple(m // per_rack for m in range(machines)) if per_rack else None
        return cls((gpus,) * machines, racks)

    @cached_property
    def gpus(self) -> int:
        """The total number of GPUs."""
        return sum(self.gpus_by_machine)

    def count_racks(self, allocation: Allocation) -> int:
        """Return the number of racks that these GPUs are in; 1 if the racks are unknown."""
        if self.racks is None or len(allocation) < 2:
            return 1
        return len({self.racks[machine] for machine, _ in allocation})

    def free_gpus(self, jobs: Sequence[JobView]) -> FreeGpus:
        """Return the number of GPUs by machine that these jobs leave."""
        free = np.array(self.gpus_by_machine, dtype=np.int64)
        for job in jobs:
            for machine, gpus in job.allocation or ():
                free[machine] -= gpus
        return free
