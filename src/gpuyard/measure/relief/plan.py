"""Which remedies are tried, on what, and on how many samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.measure.record import in_precision
from gpuyard.measure.relief.candidates import CANDIDATES
from gpuyard.measure.training.sweep import Sweep, plan_sweep
from gpuyard.run.places import Place
from gpuyard.specs import ExchangeOptions, Precision, Workload
from gpuyard.table import Table


@dataclass(frozen=True)
class ReliefPlan:
    """The choked configuration as a sweep of one point, and what is tried on it."""

    sweep: Sweep
    remedies: tuple[ExchangeOptions, ...]
    steps: int
    tolerance: float
    foreseen: tuple[float | None, ...]

    @property
    def workers(self) -> int:
        return self.sweep.points[0].workers

    @property
    def batch_per_worker(self) -> int:
        return self.sweep.points[0].batch_per_worker

    @property
    def samples(self) -> int:
        return self.steps * self.workers * self.batch_per_worker

    @property
    def precision(self) -> Precision | None:
        """None: PyTorch's default for a model of your own, which is not known before it runs."""
        return self.sweep.workload.precision

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "workload": self.sweep.workload.name,
            "workers": self.workers,
            "batch_per_worker": self.batch_per_worker,
            "place": self.sweep.place.record(self.workers).model_dump(),
            "samples": self.samples,
            "tolerance": self.tolerance,
            "precision": self.precision,
            "remedies": [remedy.label for remedy in self.remedies],
            "foreseen_speed_ups": list(self.foreseen),
        }

    def listing(self) -> Table:
        """For `--dry-run` and people."""
        return Table(
            f"{self.sweep.workload.name}{in_precision(self.precision)}: {self.workers} workers, batch {self.batch_per_worker}, "
            f"{self.samples:,} samples each",
            ["remedy", "predicted"],
            [
                [remedy.label, "–" if gain is None else f"{gain:.2f} ×"]
                for remedy, gain in zip(self.remedies, self.foreseen, strict=True)
            ],
        )

    @property
    def used_cores(self) -> list[int]:
        return self.sweep.used_cores


def plan_relief(
    workload: Workload,
    workers: int,
    batch_per_worker: int,
    place: Place,
    *,
    samples: int = 6000,
    tolerance: float = 0.05,
    remedies: Sequence[ExchangeOptions] = CANDIDATES,
    foreseen: Mapping[ExchangeOptions, float] | None = None,
    launcher: str | None = None,
) -> ReliefPlan:
    """Plain DDP comes first; all see the same samples, in whole periods of every remedy."""
    if workers < 2:
        raise UserMistake("one worker exchanges nothing, so there is nothing to relieve")
    if samples < 1 or not 0 <= tolerance < math.inf:
        raise UserMistake("expected 1 sample or more, and a tolerance of 0 % or more")
    tried = (ExchangeOptions(), *(remedy for remedy in remedies if not remedy.plain))
    period = math.lcm(*(remedy.period for remedy in tried))
    steps = math.ceil(samples / (workers * batch_per_worker) / period) * period
    sweep = plan_sweep(workload, [workers], [batch_per_worker], place=place, launcher=launcher)
    gains = foreseen or {}
    return ReliefPlan(sweep, tried, steps, tolerance, tuple(gains.get(remedy) for remedy in tried))
