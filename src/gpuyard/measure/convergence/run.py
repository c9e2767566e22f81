"""Running it: ranks are started, epochs come in, and the last one says whether it was enough."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from pydantic import BaseModel, ConfigDict

from gpuyard.measure.convergence.job import EpochDone, FitJob, FitProgress, read_event
from gpuyard.measure.convergence.plan import FitPlan
from gpuyard.measure.lock import only_one_measures
from gpuyard.run.places import Here
from gpuyard.run.ranks import private_directory, run_ranks

_SILENCE_SECONDS = 600.0
_WORKER = "gpuyard.measure.convergence.worker"


class FitResult(BaseModel):
    """All epochs, those before a kill too."""

    model_config = ConfigDict(frozen=True)

    workload: str
    workers: int
    batch_per_worker: int
    target_accuracy: float
    reached: bool
    checkpoint: str
    epochs: tuple[EpochDone, ...]

    @property
    def last(self) -> EpochDone:
        return self.epochs[-1]

    def as_json(self) -> dict[str, Any]:
        last = {k: v for k, v in self.last.model_dump().items() if k not in {"event", "restored"}}
        return {**self.model_dump(mode="json"), "last": last}


def run_fit(
    plan: FitPlan,
    *,
    fresh: bool = False,
    on_event: Callable[[FitProgress | EpochDone], None] = lambda _event: None,
) -> FitResult:
    """Train, or go on where the checkpoint is; `fresh` forgets it first."""
    epochs: list[EpochDone] = []
    with only_one_measures(), private_directory() as directory:
        if fresh:
            plan.checkpoint.unlink(missing_ok=True)
        processes = len(plan.cores_by_worker)
        jobs = [
            FitJob(
                workload=plan.workload,
                device=plan.device,
                rank=rank,
                processes=processes,
                directory=str(directory),
                cores=cores,
                silence_seconds=_SILENCE_SECONDS,
                seed=plan.seed,
                batch_per_worker=plan.batch_per_worker,
                epochs=plan.epochs,
                target_accuracy=plan.target_accuracy,
                checkpoint=str(plan.checkpoint),
                identity=plan.identity,
            )
            for rank, cores in enumerate(plan.cores_by_worker)
        ]
        ranks: Generator[FitProgress | EpochDone, None, None] = run_ranks(
            Here(), jobs, parse=read_event, worker=_WORKER
        )
        with contextlib.closing(ranks) as events:
            for event in events:
                on_event(event)
                if isinstance(event, EpochDone):
                    epochs.append(event)
    return FitResult(
        workload=plan.workload.name,
        workers=processes,
        batch_per_worker=plan.batch_per_worker,
        target_accuracy=plan.target_accuracy,
        reached=epochs[-1].training_accuracy > plan.target_accuracy,
        checkpoint=str(plan.checkpoint),
        epochs=tuple(epochs),
    )
