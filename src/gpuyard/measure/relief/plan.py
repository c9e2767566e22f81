"""Plans which remedies are measured and on how many samples, and predicts which of them are worth it.

`gpuyard predict --why` changes one option at a time. Here 16-bit gradients are combined with the others, and local SGD
is also tried with longer periods, because their effect on the loss is measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.measure.record import format_precision_suffix
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.sweep import Sweep
from gpuyard.predictor import (
    CPU_VARIATION,
    STRATEGIES,
    ComputeLine,
    Pipe,
    Placement,
    Platform,
    PlatformScenario,
)
from gpuyard.predictor.calibration.defaults import GLOO_HOP, GLOO_LINK
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.strategies.remedies import ACCUMULATED_STEPS, BUCKET_MEGABYTES, POWERSGD_RANK
from gpuyard.predictor.transport import create_fabric
from gpuyard.run.places import Place
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Network, Precision, Workload
from gpuyard.table import Table

MIN_GAIN = 1.03
"""The speed-up from which a remedy is worth trying, the same as in `gpuyard predict --why`."""
_LOCAL_STEPS = (ACCUMULATED_STEPS, 8, 16)

CANDIDATES = (
    ExchangeOptions(compress="fp16"),
    ExchangeOptions(compress=f"powersgd:{POWERSGD_RANK}"),
    ExchangeOptions(accumulate=ACCUMULATED_STEPS),
    ExchangeOptions(compress="fp16", accumulate=ACCUMULATED_STEPS),
    *(ExchangeOptions(compress="fp16", local_sgd=steps) for steps in _LOCAL_STEPS),
)
"""The remedies that can be measured; the predictor selects those that are worth it."""


@dataclass(frozen=True)
class ReliefPlan:
    """The choked configuration as a sweep of one point, and the remedies to measure on it."""

    sweep: Sweep
    remedies: tuple[ExchangeOptions, ...]
    steps: int
    tolerance: float
    predicted_gains: tuple[float | None, ...]

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
        """The precision; None for a user's own model, whose default is unknown before it runs."""
        return self.sweep.workload.precision

    def describe(self) -> dict[str, Any]:
        """Return the JSON value that `--dry-run` prints."""
        return {
            "workload": self.sweep.workload.name,
            "workers": self.workers,
            "batch_per_worker": self.batch_per_worker,
            "place": self.sweep.place.record(self.workers).model_dump(),
            "samples": self.samples,
            "tolerance": self.tolerance,
            "precision": self.precision,
            "remedies": [remedy.label for remedy in self.remedies],
            "predicted_speed_ups": list(self.predicted_gains),
        }

    def build_table(self) -> Table:
        """Return the table that `--dry-run` prints."""
        return Table(
            f"{self.sweep.workload.name}{format_precision_suffix(self.precision)}: {self.workers} workers, batch {self.batch_per_worker}, "
            f"{self.samples:,} samples each",
            ["remedy", "predicted"],
            [
                [remedy.label, "–" if gain is None else f"{gain:.2f} ×"]
                for remedy, gain in zip(self.remedies, self.predicted_gains, strict=True)
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
    predicted_gains: Mapping[ExchangeOptions, float] | None = None,
    launcher: str | None = None,
) -> ReliefPlan:
    """Plan plain DDP and then the remedies, all on the same samples in whole periods of every remedy."""
    if workers < 2:
        raise UserMistake(
            "remedies need at least 2 workers, because one worker exchanges no gradients"
        )
    if samples < 1 or not 0 <= tolerance < math.inf:
        raise UserMistake("samples must be 1 or more, and the tolerance 0% or more")
    exchanges = (ExchangeOptions(), *(remedy for remedy in remedies if not remedy.is_default))
    period = math.lcm(*(exchange.period for exchange in exchanges))
    steps = math.ceil(samples / (workers * batch_per_worker) / period) * period
    sweep = plan_sweep(workload, [workers], [batch_per_worker], place=place, launcher=launcher)
    gains = predicted_gains or {}
    exchange_gains = tuple(gains.get(exchange) for exchange in exchanges)
    return ReliefPlan(sweep, exchanges, steps, tolerance, exchange_gains)


def predict_gains(
    workload: Workload,
    profile: ModelProfile,
    single_worker: Measurement,
    workers: int,
    place: RunPlace,
) -> dict[ExchangeOptions, float] | None:
    """Return the speed-ups over plain DDP that are worth it, largest first, or None if the link is unknown.

    `single_worker` is one worker at the same batch, whose step has no gradient exchange.
    """
    platform = _build_platform(workers, place)
    if platform is None:
        return None
    batch = single_worker.batch_per_worker
    seconds = single_worker.step.step_seconds
    line = ComputeLine(0.0, seconds / batch, "measured here", f"run {single_worker.id}")
    placement = Placement(workers, platform.nodes, platform.gpus_per_node)
    scenario = PlatformScenario(
        workload.model_copy(update={"batch_per_gpu": batch}),
        profile,
        platform,
        line,
        STRATEGIES["ddp"],
        variation=CPU_VARIATION,
    )

    def predict_rate(remedy: ExchangeOptions) -> float:
        return float(replace(scenario, exchange=remedy).samples_per_second([placement])[0])

    plain_rate = predict_rate(ExchangeOptions())
    buckets = [ExchangeOptions(bucket_mb=float(size)) for size in BUCKET_MEGABYTES]
    candidates = (*CANDIDATES, max(buckets, key=predict_rate))
    gains = {remedy: predict_rate(remedy) / plain_rate for remedy in candidates}
    largest_first = sorted(gains.items(), key=lambda pair: -pair[1])
    return {remedy: gain for remedy, gain in largest_first if gain >= MIN_GAIN}


def _build_platform(workers: int, place: RunPlace) -> Platform | None:
    here, rate = place.kind == "here", place.link_bytes_per_second
    per_node = workers if here else place.ranks_per_node or 1
    between = None
    if not here:
        if rate is None:
            return None
        network = Network.model_validate({"rate": f"{8 * rate} bit/s"})
        between = partial(create_fabric(network)[0].pipe, tuning=load_tuning())
    return Platform(
        name=place.kind,
        nodes=math.ceil(workers / per_node),
        gpus_per_node=per_node,
        inside=lambda _: Pipe(GLOO_LINK.value, GLOO_HOP.value, GLOO_LINK.basis),
        between=between,
        host_to_gpu_bytes_per_second=None,  # the measured step includes reading the samples
        storage_bytes_per_second=None,
        memory_bytes=None,
    )
