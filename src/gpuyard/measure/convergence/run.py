"""Trains to a target accuracy: starts the ranks, and collects their epochs."""

from dataclasses import replace
from functools import partial

from gpuyard import files
from gpuyard.files import create_parent, probe_writable
from gpuyard.measure.convergence import checkpoint
from gpuyard.measure.convergence.plan import ConvergencePlan
from gpuyard.measure.convergence.records import (
    ConvergenceJob,
    ConvergenceRun,
    EpochProgress,
    EpochResult,
    read_event,
)
from gpuyard.measure.progress import ProgressCallback, ProgressMeter
from gpuyard.measure.ranks import launch_ranks
from gpuyard.measure.record import create_identity
from gpuyard.run.places import LocalMachine
from gpuyard.workloads.code_trust import check_allowed

_WORKER = "gpuyard.measure.convergence.worker"


def run_convergence(
    plan: ConvergencePlan, on_progress: ProgressCallback = lambda _progress: None
) -> ConvergenceRun:
    """Train, or resume from the checkpoint."""
    check_allowed(plan.workload)
    epochs: list[EpochResult] = []
    meter = ProgressMeter(range(1, plan.epochs + 1))
    if plan.fresh:
        checkpoint.delete(plan.checkpoint)
    if plan.checkpoint.is_relative_to(files.home().absolute()):
        create_parent(plan.checkpoint)
    probe_writable(plan.checkpoint)
    header = checkpoint.read_header(plan.checkpoint)
    if header is not None:  # checked here too, to fail before ranks are started
        checkpoint.check_resumable(
            plan.checkpoint, header, plan.identity, len(plan.cores_by_worker)
        )
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
    with launch_ranks(
        LocalMachine(), plan.cores_by_worker, job, worker=_WORKER, read=read_event
    ) as events:
        for event in events:
            what = f"epoch {event.epoch}"
            if isinstance(event, EpochProgress):
                on_progress(meter.advance(event.epoch, event.fraction, what))
                continue
            epochs.append(event)
            if event.restored:
                meter.skip(event.epoch)
            on_progress(replace(meter.advance(event.epoch, 1.0, what), message=event.summary))
    return ConvergenceRun(
        **create_identity(plan.key),
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
