"""One point of a sweep on one rank: build, train under the clock, report, forget."""

from collections.abc import Callable

import torch

from gpuyard.catalog import ModelProfile
from gpuyard.errors import GpuyardError
from gpuyard.measure.training.records import PointProgress, PointResult, TrainingJob, Window
from gpuyard.measure.training.statistics import rate_of_windows
from gpuyard.measure.training.timing import finite, measured_step, time_windows
from gpuyard.measure.training.trainer import Trainer, parameter_checksum
from gpuyard.run.peers import Peers
from gpuyard.workloads.profiles import catalog_profile, profile_here
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import Samples, build_batches, load_samples, load_undecoded
from gpuyard.workloads.task import Task


def read_samples(job: TrainingJob) -> Samples:
    """The same on every rank; each takes its share of them."""
    torch.manual_seed(job.seed)
    if job.synthetic is not None:
        return load_undecoded(job.workload, task_of(job))
    return load_samples(job.workload, task_of(job))


def task_of(job: TrainingJob) -> Task:
    """The workload's own, or the stand-in that takes as long as a catalog GPU would."""
    gpu = job.synthetic
    if gpu is None:
        return build_task(job.workload)
    from gpuyard.workloads.synthetic import synthetic_task

    return synthetic_task(job.workload, lambda batch: job.dilation * gpu.step_seconds(batch))


def own_profile(job: TrainingJob) -> ModelProfile | None:
    """What the first rank says of a user's own model; None too where that can't be said, though it trains."""
    if job.rank or catalog_profile(job.workload) is not None:
        return None
    try:
        return profile_here(job.workload)
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
    """Each point starts from the same weights, so it does not matter which came before it."""
    on_progress(PointProgress(batch_per_worker=batch, fraction=0.0))
    torch.manual_seed(job.seed)
    task = task_of(job)
    torch.manual_seed(job.seed + job.rank)  # dropout may differ between ranks
    trainer = Trainer(task, job, device)
    # one process drives all GPUs under DataParallel, and splits one large batch among them
    per_process = batch * job.workers // job.processes
    batches, local_batches = (
        build_batches(
            job.workload,
            task,
            batch=size,
            rank=job.rank,
            world=job.processes,
            seed=job.seed + order,
            device=str(device),
            samples=samples,
        )
        for order, size in enumerate((per_process, batch))
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
    windows = _undilated(timed.windows, job.dilation)
    local_windows = _undilated(timed.local_windows, job.dilation)
    samples_in_window = windows[0].steps * batch * job.workers
    rate = rate_of_windows([w.seconds for w in windows], samples_in_window)
    bare_seconds = peers.all_reduce_seconds(trainer.gradient_bytes, device)
    computed = job.synthetic is None
    return PointResult(
        batch_per_worker=batch,
        samples_per_second=rate.per_second,
        low=rate.low,
        high=rate.high,
        step=measured_step(windows, local_windows),
        all_reduce_bytes=trainer.gradient_bytes if peers.count > 1 else None,
        all_reduce_seconds=None if bare_seconds is None else bare_seconds / job.dilation,
        windows=windows,
        local_windows=local_windows,
        loss_first=finite(timed.loss_first) if computed else None,
        loss_last=finite(timed.loss_last) if computed else None,
        parameter_checksums=tuple(peers.collect(parameter_checksum(trainer.module))),
        backend=peers.backend,
        data_source=samples.data_source,
    )


def _undilated(windows: tuple[Window, ...], dilation: float) -> tuple[Window, ...]:
    return tuple(
        Window(
            steps=window.steps,
            seconds=window.seconds / dilation,
            input_seconds=window.input_seconds / dilation,
        )
        for window in windows
    )
