"""The rank process of a relief: `python -m gpuyard.measure.relief.worker`."""

import gc
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from gpuyard.interpreter import import_to_stay
from gpuyard.measure.relief.records import ReliefJob, ReliefProgress, Relieved
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

_EVALUATED = 1000
_AT_ONCE = 250


def main() -> None:
    """Run one job and exit."""
    serve(ReliefJob, _run)


def _run(job: ReliefJob, emit: Emit) -> None:
    require_torch()
    import_to_stay("torch", "torch._dynamo")  # which optimizers import when they are made
    from gpuyard.measure.training.point import read_samples
    from gpuyard.measure.training.trainer import set_precision
    from gpuyard.run.peers import Peers, own_device

    set_precision(job.workload.precision)
    device = own_device(job)
    samples = read_samples(job)
    peers = Peers(job)
    report: Emit = emit if job.rank == 0 else lambda _event: None
    for number, remedy in enumerate(job.remedies):
        report(
            _train(job, number, remedy, device=device, peers=peers, samples=samples, report=report)
        )
        gc.collect()
    peers.leave()


def _train(
    job: ReliefJob,
    number: int,
    remedy: ExchangeOptions,
    *,
    device: "torch.device",
    peers: "Peers",
    samples: "Samples",
    report: Emit,
) -> Relieved:
    import torch

    from gpuyard.measure.training.timing import finite
    from gpuyard.measure.training.trainer import Trainer, parameter_checksum
    from gpuyard.run.peers import synchronize
    from gpuyard.workloads.resolve import build_task

    torch.manual_seed(job.seed)
    task = build_task(job.workload)
    torch.manual_seed(job.seed + job.rank)
    trainer = Trainer(task, job.model_copy(update={"remedy": remedy}), device)
    batches = _batches(job, task, device, samples)
    loss_first = _loss(job, trainer, task, device=device, peers=peers, samples=samples)
    trainer.module.train()
    # the first period sets up buffers and is not timed; what it learns counts
    untimed = trainer.period if trainer.period < job.steps else 0
    began = perf_counter()
    for step in range(job.steps):
        if step == untimed:
            synchronize(device)
            peers.barrier()
            began = perf_counter()
        report(ReliefProgress(number=number, fraction=step / job.steps))
        trainer.step(*next(batches))
    synchronize(device)
    (seconds,) = peers.slowest([perf_counter() - began])
    seconds /= job.dilation
    count = (job.steps - untimed) * job.batches[0] * job.workers
    checksums = peers.collect(parameter_checksum(trainer.module))
    return Relieved(
        remedy=remedy,
        samples=job.steps * job.batches[0] * job.workers,
        seconds=seconds,
        samples_per_second=count / seconds,
        loss_first=finite(loss_first),
        loss=finite(_loss(job, trainer, task, device=device, peers=peers, samples=samples)),
        ranks_equal=len(set(checksums)) == 1,
    )


def _batches(
    job: ReliefJob, task: "Task", device: "torch.device", samples: "Samples"
) -> "Iterator[Batch]":
    from gpuyard.measure.convergence.recipe import prepared
    from gpuyard.workloads.samples import build_batches

    drawn = build_batches(
        job.workload,
        task,
        batch=job.batches[0],
        rank=job.rank,
        world=job.processes,
        seed=job.seed,
        device=str(device),
        samples=samples,
    )
    for inputs, target in drawn:
        yield prepared(inputs, _source(job)), target


def _loss(
    job: ReliefJob,
    trainer: "Trainer",
    task: "Task",
    *,
    device: "torch.device",
    peers: "Peers",
    samples: "Samples",
) -> float:
    """Mean over samples from all over the data, the same for every remedy; each rank takes its share."""
    import torch

    from gpuyard.measure.convergence.recipe import prepared

    every = max(1, samples.count // _EVALUATED)  # data sets are often sorted by class
    mine = torch.arange(0, samples.count, every)[job.rank :: job.processes]
    total = 0.0
    trainer.module.eval()
    with torch.no_grad(), trainer.autocast():
        for chosen in torch.split(mine, _AT_ONCE):
            inputs, target = samples.gather(chosen)
            ready = tuple(t.to(device) for t in prepared(inputs, _source(job)))
            total += float(task.loss(trainer.module(*ready), target.to(device))) * len(chosen)
    loss_sum, count = peers.mean([total, float(len(mine))])
    return loss_sum / count


def _source(job: ReliefJob) -> str:
    """Whether there are clips to be made equally loud."""
    return job.workload.dataset.source if job.workload.dataset else ""


if __name__ == "__main__":
    main()
