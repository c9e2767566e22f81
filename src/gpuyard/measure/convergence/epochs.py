"""Trains the epochs of one rank. The sample order and random numbers of an epoch follow from the seed and its number.

Gradients are averaged as one array. DistributedDataParallel rearranges its buckets after the first step, so sums over
three or more ranks would round differently in a resumed run.
"""

import math
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.convergence import checkpoint as checkpoints
from gpuyard.measure.convergence.recipe import (
    build_optimizer,
    normalize_loudness,
    set_learning_rates,
    split_samples,
)
from gpuyard.measure.convergence.records import ConvergenceJob, EpochProgress, EpochResult
from gpuyard.measure.training.trainer import autocast, checksum_parameters
from gpuyard.run.peers import Peers
from gpuyard.run.rank_process import Emit
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import load_samples

_EVALUATION_BATCH = 250


class EpochTrainer:
    """Trains a task epoch by epoch, and saves a checkpoint after each."""

    def __init__(self, job: ConvergenceJob, device: torch.device) -> None:
        torch.manual_seed(job.seed)
        self._job, self._device = job, device
        self._task = build_task(job.workload)
        self._samples = load_samples(job.workload, self._task)
        self._source = job.workload.dataset.source if job.workload.dataset else ""
        self._module = self._task.model.to(device)
        self._optimizer = build_optimizer(self._module)
        self._training, self._held_out = split_samples(self._samples.count)
        if not len(self._training):
            raise UserMistake(f"{job.workload.name} has too few samples to hold some out")
        self._peers = Peers(job)
        self._results: list[EpochResult] = []

    def run(self, report: Emit) -> None:
        """Train, from the checkpoint if there is one, until the target accuracy or the last epoch."""
        path = Path(self._job.checkpoint)
        header = checkpoints.read_header(path)
        if header is not None:
            checkpoints.check_resumable(path, header, self._job.identity, self._job.processes)
            checkpoints.restore(path, self._module, self._optimizer)
            self._results = [EpochResult.model_validate(epoch) for epoch in header.epochs]
            for result in self._results:
                report(result.model_copy(update={"restored": True}))
        while len(self._results) < self._job.epochs and not self._target_reached():
            result = self._train_epoch(1 + len(self._results), report)
            self._results.append(result)
            if self._job.rank == 0:
                self._save(path)
            self._peers.barrier()  # no rank starts the next epoch before this one is saved
            report(result)
        self._peers.close()

    def _target_reached(self) -> bool:
        if not self._results:
            return False
        return self._results[-1].training_accuracy >= self._job.target_accuracy

    def _save(self, path: Path) -> None:
        epochs = tuple(result.model_dump(mode="json") for result in self._results)
        header = checkpoints.CheckpointHeader(self._job.identity, self._job.processes, epochs)
        checkpoints.save(path, header, self._module, self._optimizer)

    def _train_epoch(self, number: int, report: Emit) -> EpochResult:
        start = time.perf_counter()
        job = self._job
        torch.manual_seed(job.seed + 1000 * number + job.rank)
        order = torch.randperm(
            len(self._training), generator=torch.Generator().manual_seed(job.seed + number)
        )
        # every rank trains the same number of batches; the remaining samples are skipped in this epoch
        steps = max(1, len(order) // (job.batch_per_worker * job.processes))
        shard = order[job.rank :: job.processes]
        set_learning_rates(self._optimizer, updates=(number - 1) * steps)
        self._module.train()
        for step in range(steps):
            report(EpochProgress(epoch=number, fraction=step / steps))
            indices = shard[step * job.batch_per_worker : (step + 1) * job.batch_per_worker]
            self._train_step(self._training[indices])
        self._broadcast_buffers()
        loss, training_accuracy = self._evaluate(self._training)
        _, held_out_accuracy = self._evaluate(self._held_out)
        if not math.isfinite(loss):
            raise GpuyardError(
                f"the loss is no longer a number after epoch {number}; try a larger batch"
            )
        return EpochResult(
            epoch=number,
            seconds=time.perf_counter() - start,
            loss=loss,
            training_accuracy=training_accuracy,
            held_out_accuracy=held_out_accuracy,
            parameter_checksum=checksum_parameters(self._module),
        )

    def _train_step(self, indices: Tensor) -> None:
        inputs, target = self._load_batch(indices)
        self._optimizer.zero_grad()
        with autocast(self._job.workload.precision, self._device):
            loss = self._task.loss(self._module(*inputs), target)
        torch.autograd.backward(loss)
        if self._peers.count > 1:
            self._average_gradients()
        self._optimizer.step()

    def _average_gradients(self) -> None:
        gradients = [p.grad for p in self._module.parameters() if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        flat /= self._peers.count
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()

    def _broadcast_buffers(self) -> None:
        # each rank has its own running statistics, and a checkpoint holds only those of rank 0
        if self._peers.count > 1:
            for buffer in self._module.buffers():
                dist.broadcast(buffer, src=0)

    def _evaluate(self, indices: Tensor) -> tuple[float, float]:
        shard = indices[self._job.rank :: self._job.processes]
        totals = torch.zeros(3, dtype=torch.float64)
        self._module.eval()
        with torch.no_grad(), autocast(self._job.workload.precision, self._device):
            for batch in torch.split(shard, _EVALUATION_BATCH):
                inputs, target = self._load_batch(batch)
                output = self._module(*inputs)
                correct = (output.argmax(1) == target).sum()
                loss = self._task.loss(output, target)
                totals += torch.tensor([float(loss) * len(target), float(correct), len(target)])
        if self._peers.count > 1:
            dist.all_reduce(totals)
        loss_sum, correct_count, count = (float(total) for total in totals)
        return loss_sum / count, correct_count / count

    def _load_batch(self, indices: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs, target = self._samples.gather(indices)
        if target.dim() != 1 or target.is_floating_point():
            raise UserMistake(
                f"{self._job.workload.name} does not predict a class, so it has no accuracy"
            )
        inputs = normalize_loudness(inputs, self._source)
        return tuple(tensor.to(self._device) for tensor in inputs), target.to(self._device)
