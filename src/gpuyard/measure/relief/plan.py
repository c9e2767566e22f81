"""Which remedies are tried, on what, and on how many samples; and which of them the predictor names.

`gpuyard predict --why` changes one thing at a time; here 16 bits go together with everything, and local SGD
is also asked with longer periods, since what it does to the loss is about to be measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.measure.record import in_precision
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.sweep import Sweep, plan_sweep
from gpuyard.predict import (
    CPU_VARIATION,
    HOP_HERE,
    LINK_HERE,
    STRATEGIES,
    ComputeLine,
    Pipe,
    Placement,
    Platform,
    PlatformScenario,
)
from gpuyard.predict.constants import fitted
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, BUCKET_MEGABYTES, POWERSGD_RANK
from gpuyard.predict.transport import between_machines
from gpuyard.run.places import Place
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Network, Precision, Workload
from gpuyard.table import Table

LEAST_GAIN = 1.03
"""As in `gpuyard predict --why`."""
_LOCAL_STEPS = (ACCUMULATED_STEPS, 8, 16)

CANDIDATES = (
    ExchangeOptions(compress="fp16"),
    ExchangeOptions(compress=f"powersgd:{POWERSGD_RANK}"),
    ExchangeOptions(accumulate=ACCUMULATED_STEPS),
    ExchangeOptions(compress="fp16", accumulate=ACCUMULATED_STEPS),
    *(ExchangeOptions(compress="fp16", local_sgd=steps) for steps in _LOCAL_STEPS),
)
"""What can be measured; the predictor says which of them are worth it."""


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


def predicted_gains(
    workload: Workload, profile: ModelProfile, alone: Measurement, workers: int, place: RunPlace
) -> dict[ExchangeOptions, float] | None:
    """Speed-ups over plain DDP that are worth it, the largest first; None where the link is not known.

    `alone` is one worker at the same batch: what a step takes without any exchange.
    """
    platform = _platform(workers, place)
    if platform is None:
        return None
    batch = alone.batch_per_worker
    seconds = alone.step.step_seconds
    line = ComputeLine(0.0, seconds / batch, "measured here", f"run {alone.id}")
    where = Placement(workers, platform.nodes, platform.gpus_per_node)

    plainly = PlatformScenario(
        workload.model_copy(update={"batch_per_gpu": batch}),
        profile,
        platform,
        line,
        STRATEGIES["ddp"],
        variation=CPU_VARIATION,
    )

    def rate(remedy: ExchangeOptions) -> float:
        return float(replace(plainly, exchange=remedy).samples_per_second([where])[0])

    plain = rate(ExchangeOptions())
    buckets = [ExchangeOptions(bucket_mb=float(size)) for size in BUCKET_MEGABYTES]
    tried = (*CANDIDATES, max(buckets, key=rate))
    gains = {remedy: rate(remedy) / plain for remedy in tried}
    worth = [(gain, remedy) for remedy, gain in gains.items() if gain >= LEAST_GAIN]
    return {remedy: gain for gain, remedy in sorted(worth, key=lambda pair: -pair[0])}


def _platform(workers: int, place: RunPlace) -> Platform | None:
    here, rate = place.kind == "here", place.link_bytes_per_second
    per_node = workers if here else place.ranks_per_node or 1
    between = None
    if not here:
        if rate is None:
            return None
        network = Network.model_validate({"rate": f"{8 * rate} bit/s"})
        between = partial(between_machines(network)[0].pipe, tuning=fitted())
    return Platform(
        name=place.kind,
        nodes=math.ceil(workers / per_node),
        gpus_per_node=per_node,
        inside=lambda _: Pipe(LINK_HERE.value, HOP_HERE.value, LINK_HERE.basis),
        between=between,
        host_to_gpu_bytes_per_second=None,  # the samples are read in the measured step
        storage_bytes_per_second=None,
        memory_bytes=None,
    )
