"""Running it: ranks are started, epochs come in, and the last one says whether it was enough."""

from dataclasses import replace
from functools import partial

from gpuyard import files
from gpuyard.files import make_parent, try_writable
from gpuyard.measure.convergence import checkpoint
from gpuyard.measure.convergence.plan import ConvergencePlan
from gpuyard.measure.convergence.records import (
    ConvergenceJob,
    ConvergenceRun,
    EpochDone,
    EpochProgress,
    read_event,
)
from gpuyard.measure.progress import ProgressMeter, Tell
from gpuyard.measure.ranks import running_ranks
from gpuyard.measure.record import made_now
from gpuyard.run.places import Here
from gpuyard.workloads.own_code import check_allowed

_WORKER = "gpuyard.measure.convergence.worker"


def run_convergence(plan: ConvergencePlan, tell: Tell = lambda _progress: None) -> ConvergenceRun:
    """Train, or go on where the checkpoint is."""
    check_allowed(plan.workload)
    epochs: list[EpochDone] = []
    meter = ProgressMeter(range(1, plan.epochs + 1))
    if plan.fresh:
        checkpoint.forget(plan.checkpoint)
    if plan.checkpoint.is_relative_to(files.home().absolute()):
        make_parent(plan.checkpoint)
    try_writable(plan.checkpoint)
    about = checkpoint.read_about(plan.checkpoint)
    if about is not None:  # said before ranks are started
        checkpoint.check(plan.checkpoint, about, plan.identity, len(plan.cores_by_worker))
    job = partial(
        ConvergenceJob,
        workload=plan.workload,
        device=plan.device,
        seed=plan.seed,
        batch_per_worker=plan.batch_per_worker,
        epochs=plan.epochs,
        target_accuracy=plan.target_accuracy,
        checkpoint=str(plan.checkpoint),
        identity=plan.identity,
    )
    with running_ranks(
        Here(), plan.cores_by_worker, job, worker=_WORKER, read=read_event
    ) as events:
        for event in events:
            what = f"epoch {event.epoch}"
            if isinstance(event, EpochProgress):
                tell(meter.at(event.epoch, event.fraction, what))
                continue
            epochs.append(event)
            if event.restored:
                meter.skip(event.epoch)
            tell(replace(meter.at(event.epoch, 1.0, what), line=event.words))
    return ConvergenceRun(
        **made_now(plan.key),
        host=plan.testbed,
        workload=plan.workload.name,
        workers=len(plan.cores_by_worker),
        batch_per_worker=plan.batch_per_worker,
        target_accuracy=plan.target_accuracy,
        precision=plan.workload.precision,
        reached=epochs[-1].training_accuracy >= plan.target_accuracy,
        checkpoint=str(plan.checkpoint),
        epochs=tuple(epochs),
    )
