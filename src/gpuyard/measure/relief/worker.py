"""The rank process of a remedy benchmark: `python -m gpuyard.measure.relief.worker`."""

import gc
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from gpuyard.interpreter import import_permanently
from gpuyard.measure.relief.records import ReliefJob, ReliefProgress, RemedyRun
from gpuyard.run.rank_process import Emit, serve
from gpuyard.specs import ExchangeOptions
from gpuyard.workloads.resolve import require_torch

if TYPE_CHECKING:
    import torch

    from gpuyard.measure.training.trainer import Trainer
    from gpuyard.run.peers import Peers
    from gpuyard.workloads.samples import Samples
    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_EVALUATED_SAMPLES = 1000
_EVALUATION_BATCH = 250


def main() -> None:
    """Run one job and exit."""
    serve(ReliefJob, _run)


def _run(job: ReliefJob, emit: Emit) -> None:
    require_torch()
    import_permanently("torch", "torch._dynamo")  # optimizers import it when they are created
    from gpuyard.measure.training.point import load_job_samples
    from gpuyard.measure.training.trainer import set_precision
    from gpuyard.run.peers import Peers, select_device

    set_precision(job.workload.precision)
    device = select_device(job)
    samples = load_job_samples(job)
    peers = Peers(job)
    report: Emit = emit if job.rank == 0 else lambda _event: None
    for number, remedy in enumerate(job.remedies):
        report(
            _train(job, number, remedy, device=device, peers=peers, samples=samples, report=report)
        )
        gc.collect()
    peers.close()


def _train(
    job: ReliefJob,
    number: int,
    remedy: ExchangeOptions,
    *,
    device: "torch.device",
    peers: "Peers",
    samples: "Samples",
    report: Emit,
) -> RemedyRun:
    import torch

    from gpuyard.measure.training.timing import finite_or_none
    from gpuyard.measure.training.trainer import Trainer, checksum_parameters
    from gpuyard.run.peers import synchronize
    from gpuyard.workloads.resolve import build_task

    torch.manual_seed(job.seed)
    task = build_task(job.workload)
    torch.manual_seed(job.seed + job.rank)
    trainer = Trainer(task, job.model_copy(update={"remedy": remedy}), device)
    batches = _load_batches(job, task, device, samples)
    loss_first = _evaluate(job, trainer, task, device=device, peers=peers, samples=samples)
    trainer.module.train()
    # the first period sets up buffers, so it is trained but not timed
    untimed_steps = trainer.period if trainer.period < job.steps else 0
    start = perf_counter()
    for step in range(job.steps):
        if step == untimed_steps:
            synchronize(device)
            peers.barrier()
            start = perf_counter()
        report(ReliefProgress(number=number, fraction=step / job.steps))
        trainer.step(*next(batches))
    synchronize(device)
    (seconds,) = peers.max([perf_counter() - start])
    seconds /= job.dilation
    timed_samples = (job.steps - untimed_steps) * job.batches[0] * job.workers
    checksums = peers.gather_text(checksum_parameters(trainer.module))
    return RemedyRun(
        remedy=remedy,
        samples=job.steps * job.batches[0] * job.workers,
        seconds=seconds,
        samples_per_second=timed_samples / seconds,
        loss_first=finite_or_none(loss_first),
        loss=finite_or_none(
            _evaluate(job, trainer, task, device=device, peers=peers, samples=samples)
        ),
        ranks_equal=len(set(checksums)) == 1,
    )


def _load_batches(
    job: ReliefJob, task: "Task", device: "torch.device", samples: "Samples"
) -> "Iterator[Batch]":
    from gpuyard.measure.convergence.recipe import normalize_loudness
    from gpuyard.workloads.samples import build_batches

    batches = build_batches(
        job.workload,
        task,
        batch=job.batches[0],
        rank=job.rank,
        world=job.processes,
        seed=job.seed,
        device=str(device),
        samples=samples,
    )
    for inputs, target in batches:
        yield normalize_loudness(inputs, _data_source(job)), target


def _evaluate(
    job: ReliefJob,
    trainer: "Trainer",
    task: "Task",
    *,
    device: "torch.device",
    peers: "Peers",
    samples: "Samples",
) -> float:
    """Return the mean loss over evenly spaced samples, the same for every remedy and split among the ranks."""
    import torch

    from gpuyard.measure.convergence.recipe import normalize_loudness

    stride = max(1, samples.count // _EVALUATED_SAMPLES)  # datasets are often sorted by class
    shard = torch.arange(0, samples.count, stride)[job.rank :: job.processes]
    total = 0.0
    trainer.module.eval()
    with torch.no_grad(), trainer.autocast():
        for indices in torch.split(shard, _EVALUATION_BATCH):
            inputs, target = samples.gather(indices)
            inputs = tuple(t.to(device) for t in normalize_loudness(inputs, _data_source(job)))
            total += float(task.loss(trainer.module(*inputs), target.to(device))) * len(indices)
    loss_sum, count = peers.mean([total, float(len(shard))])
    return loss_sum / count


def _data_source(job: ReliefJob) -> str:
    return job.workload.dataset.source if job.workload.dataset else ""


if __name__ == "__main__":
    main()
