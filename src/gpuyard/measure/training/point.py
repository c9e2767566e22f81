"""Measures one point of a sweep on one rank: builds the model and its data, and times training steps."""

from collections.abc import Callable

import torch

from gpuyard.catalog import ModelProfile
from gpuyard.errors import GpuyardError
from gpuyard.measure.training.records import PointProgress, PointResult, TrainingJob, Window
from gpuyard.measure.training.statistics import estimate_rate
from gpuyard.measure.training.timing import calculate_measured_step, finite_or_none, time_windows
from gpuyard.measure.training.trainer import Trainer, checksum_parameters
from gpuyard.run.peers import Peers
from gpuyard.workloads.profiles import catalog_profile, profile_in_process
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import Samples, build_batches, load_samples, load_undecoded
from gpuyard.workloads.task import Task


def load_job_samples(job: TrainingJob) -> Samples:
    """Load the samples. Every rank loads the same ones, and trains on its share of them."""
    torch.manual_seed(job.seed)
    if job.synthetic is not None:
        return load_undecoded(job.workload, build_job_task(job))
    return load_samples(job.workload, build_job_task(job))


def build_job_task(job: TrainingJob) -> Task:
    """Build the workload's task, or a synthetic one that takes as long as it would on a catalog GPU."""
    gpu = job.synthetic
    if gpu is None:
        return build_task(job.workload)
    from gpuyard.workloads.synthetic import synthetic_task

    return synthetic_task(job.workload, lambda batch: job.dilation * gpu.step_seconds(batch))


def profile_custom_model(job: TrainingJob) -> ModelProfile | None:
    """Profile a user's own model on rank 0; return None if it is a catalog model or cannot be profiled."""
    if job.rank or catalog_profile(job.workload) is not None:
        return None
    try:
        return profile_in_process(job.workload)
    except GpuyardError:
        return None


def measure_point(
    job: TrainingJob,
    batch: int,
    *,
    device: torch.device,
    peers: Peers,
    samples: Samples,
    on_progress: Callable[[PointProgress], None],
) -> PointResult:
    """Measure one batch size. Each point starts from the same weights, so points do not affect each other."""
    on_progress(PointProgress(batch_per_worker=batch, fraction=0.0))
    torch.manual_seed(job.seed)
    task = build_job_task(job)
    torch.manual_seed(job.seed + job.rank)  # dropout may differ between ranks
    trainer = Trainer(task, job, device)
    # DataParallel's one process, a tensor group, and a pipeline work on one large batch together
    together = job.strategy in ("tensor", "pipeline") and job.processes > 1
    per_process = batch * job.workers // (1 if together else job.processes)
    batches, local_batches = (
        build_batches(
            job.workload,
            task,
            batch=size,
            rank=0 if shared else job.rank,
            world=1 if shared else job.processes,
            seed=job.seed + order,
            device=str(device),
            samples=samples,
        )
        for order, (size, shared) in enumerate(((per_process, together), (batch, False)))
    )
    timed = time_windows(
        trainer,
        batches,
        local_batches if job.workers > 1 else None,
        peers=peers,
        device=device,
        budget_seconds=job.seconds_per_point,
        on_progress=lambda fraction: on_progress(
            PointProgress(batch_per_worker=batch, fraction=fraction)
        ),
    )
    windows = _remove_dilation(timed.windows, job.dilation)
    local_windows = _remove_dilation(timed.local_windows, job.dilation)
    samples_in_window = windows[0].steps * batch * job.workers
    rate = estimate_rate([w.seconds for w in windows], samples_in_window)
    all_reduce_seconds = peers.all_reduce_seconds(trainer.gradient_bytes, device)
    computed = job.synthetic is None
    return PointResult(
        batch_per_worker=batch,
        samples_per_second=rate.per_second,
        low=rate.low,
        high=rate.high,
        step=calculate_measured_step(windows, local_windows),
        all_reduce_bytes=trainer.gradient_bytes if peers.count > 1 else None,
        all_reduce_seconds=None
        if all_reduce_seconds is None
        else all_reduce_seconds / job.dilation,
        windows=windows,
        local_windows=local_windows,
        loss_first=finite_or_none(timed.loss_first) if computed else None,
        loss_last=finite_or_none(timed.loss_last) if computed else None,
        parameter_checksums=tuple(peers.gather_text(checksum_parameters(trainer.module))),
        backend=peers.backend,
        data_source=samples.data_source,
    )


def _remove_dilation(windows: tuple[Window, ...], dilation: float) -> tuple[Window, ...]:
    return tuple(
        Window(
            steps=window.steps,
            seconds=window.seconds / dilation,
            input_seconds=window.input_seconds / dilation,
        )
        for window in windows
    )
