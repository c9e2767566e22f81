"""The epochs of one rank. Every epoch's order and random numbers follow from the seed and its number.

Gradients are averaged as one array: DistributedDataParallel rearranges its buckets after the first step,
so sums of three ranks or more would round differently in a run that was taken up again.
"""

import math
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.convergence import checkpoint as checkpoints
from gpuyard.measure.convergence.recipe import build_optimizer, prepared, set_rates, split
from gpuyard.measure.convergence.records import ConvergenceJob, EpochDone, EpochProgress
from gpuyard.measure.training.trainer import autocast, parameter_checksum
from gpuyard.run.peers import Peers
from gpuyard.run.rank_process import Emit
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.samples import load_samples

_EVALUATED_AT_ONCE = 250


class EpochTrainer:
    """A task with its data, its optimizer, and what it has learned so far."""

    def __init__(self, job: ConvergenceJob, device: torch.device) -> None:
        torch.manual_seed(job.seed)
        self._job, self._device = job, device
        self._task = build_task(job.workload)
        self._samples = load_samples(job.workload, self._task)
        self._source = job.workload.dataset.source if job.workload.dataset else ""
        self._module = self._task.model.to(device)
        self._optimizer = build_optimizer(self._module)
        self._training, self._held_out = split(self._samples.count)
        if not len(self._training):
            raise UserMistake(f"{job.workload.name} has too few samples to hold some out")
        self._peers = Peers(job)
        self._done: list[EpochDone] = []

    def run(self, report: Emit) -> None:
        """Go on from the checkpoint, if there is one, until the accuracy or the last epoch."""
        path = Path(self._job.checkpoint)
        about = checkpoints.read_about(path)
        if about is not None:
            checkpoints.check(path, about, self._job.identity, self._job.processes)
            checkpoints.restore(path, self._module, self._optimizer)
            self._done = [EpochDone.model_validate(epoch) for epoch in about.epochs]
            for epoch in self._done:
                report(epoch.model_copy(update={"restored": True}))
        while len(self._done) < self._job.epochs and not self._reached():
            epoch = self._epoch(1 + len(self._done), report)
            self._done.append(epoch)
            if self._job.rank == 0:
                self._save(path)
            self._peers.barrier()  # no rank is in the next epoch before this one is safe
            report(epoch)
        self._peers.leave()

    def _reached(self) -> bool:
        return bool(self._done) and self._done[-1].training_accuracy >= self._job.target_accuracy

    def _save(self, path: Path) -> None:
        epochs = tuple(epoch.model_dump(mode="json") for epoch in self._done)
        about = checkpoints.About(self._job.identity, self._job.processes, epochs)
        checkpoints.save(path, about, self._module, self._optimizer)

    def _epoch(self, number: int, report: Emit) -> EpochDone:
        began = time.perf_counter()
        job = self._job
        torch.manual_seed(job.seed + 1000 * number + job.rank)
        order = torch.randperm(
            len(self._training), generator=torch.Generator().manual_seed(job.seed + number)
        )
        # every rank has as many batches; what is left over waits for another epoch's order
        steps = max(1, len(order) // (job.batch_per_worker * job.processes))
        shard = order[job.rank :: job.processes]
        set_rates(self._optimizer, updates=(number - 1) * steps)
        self._module.train()
        for step in range(steps):
            report(EpochProgress(epoch=number, fraction=step / steps))
            chosen = shard[step * job.batch_per_worker : (step + 1) * job.batch_per_worker]
            self._step(self._training[chosen])
        self._agree_on_buffers()
        loss, accuracy = self._evaluate(self._training)
        _, held_out = self._evaluate(self._held_out)
        if not math.isfinite(loss):
            raise GpuyardError(
                f"the loss is not a number any more after epoch {number}; try a larger batch"
            )
        return EpochDone(
            epoch=number,
            seconds=time.perf_counter() - began,
            loss=loss,
            training_accuracy=accuracy,
            held_out_accuracy=held_out,
            parameter_checksum=parameter_checksum(self._module),
        )

    def _step(self, indices: Tensor) -> None:
        inputs, target = self._batch(indices)
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

    def _agree_on_buffers(self) -> None:
        # each rank has its own running statistics; a checkpoint keeps one of them
        if self._peers.count > 1:
            for buffer in self._module.buffers():
                dist.broadcast(buffer, src=0)

    def _evaluate(self, indices: Tensor) -> tuple[float, float]:
        mine = indices[self._job.rank :: self._job.processes]
        total = torch.zeros(3, dtype=torch.float64)
        self._module.eval()
        with torch.no_grad(), autocast(self._job.workload.precision, self._device):
            for chosen in torch.split(mine, _EVALUATED_AT_ONCE):
                inputs, target = self._batch(chosen)
                output = self._module(*inputs)
                right = (output.argmax(1) == target).sum()
                loss = self._task.loss(output, target)
                total += torch.tensor([float(loss) * len(target), float(right), len(target)])
        if self._peers.count > 1:
            dist.all_reduce(total)
        loss_sum, right_count, count = (float(number) for number in total)
        return loss_sum / count, right_count / count

    def _batch(self, indices: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs, target = self._samples.gather(indices)
        if target.dim() != 1 or target.is_floating_point():
            raise UserMistake(
                f"{self._job.workload.name} does not predict a class, so it has no accuracy"
            )
        ready = prepared(inputs, self._source)
        return tuple(t.to(self._device) for t in ready), target.to(self._device)
