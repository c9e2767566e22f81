"""Divides a model among ranks: the shards of FSDP2, the heads of tensor groups, and the stages of a pipeline."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from gpuyard.workloads.zoo.gpt2 import Gpt2
from gpuyard.workloads.zoo.transformer import SelfAttention, TransformerBlock

_MICRO_BATCHES_PER_STAGE = 2


def shard_module(module: nn.Module, device: torch.device) -> None:
    """Divide a module among all ranks with FSDP2: each repeated layer on its own, then the rest."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for stack in module.modules():
        if isinstance(stack, nn.ModuleList | nn.Sequential) and len(stack) > 1:
            layers = [layer for layer in stack if any(True for _ in layer.parameters())]
            if len({type(layer) for layer in layers}) == 1 and len(layers) == len(stack):
                for layer in layers:
                    fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def divide_heads(module: nn.Module, device: torch.device) -> None:
    """Divide the heads and the feed-forward width of each transformer layer among all ranks."""
    ranks = dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    for block in module.modules():
        if isinstance(block, TransformerBlock):
            _group_by_rank(block.attention, ranks)
            plan = {
                "attention.query_key_value": ColwiseParallel(),
                "attention.output": RowwiseParallel(),
                "feed_forward.0": ColwiseParallel(),
                "feed_forward.2": RowwiseParallel(),
            }
            parallelize_module(block, mesh, plan)


def _group_by_rank(attention: SelfAttention, ranks: int) -> None:
    """Order queries, keys, and values by rank, so that each rank's part has all three of its heads."""
    projection = attention.query_key_value
    with torch.no_grad():
        for parameter in (projection.weight, projection.bias):
            by_kind = parameter.view(3, ranks, -1, *parameter.shape[1:])
            parameter.copy_(by_kind.transpose(0, 1).flatten(0, 2).clone())


class Pipeline:
    """One stage of a model on this rank, and the 1F1B schedule that passes micro-batches between ranks.

    The first and the last stage each hold the word embedding and add up its gradients, as Megatron-LM does.
    """

    def __init__(
        self, model: Gpt2, loss: Callable[[Tensor, Tensor], Tensor], device: torch.device
    ) -> None:
        self._rank, self._stages = dist.get_rank(), dist.get_world_size()
        self._loss, self._model = loss, model
        self._ends = dist.new_group([0, self._stages - 1])
        size = len(model.blocks) // self._stages
        model.blocks = nn.Sequential(
            *list(model.blocks)[self._rank * size : (self._rank + 1) * size]
        )
        first, last = self._rank == 0, self._rank == self._stages - 1
        if not first:
            del model.positions
        if not last:
            del model.norm
        if not (first or last):
            del model.words
        self._stage = PipelineStage(
            _Stage(model, first=first, last=last), self._rank, self._stages, device
        )
        self._schedule: Schedule1F1B | None = None

    def run(self, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Run forward and backward of all micro-batches; the mean over ranks of the result is the loss."""
        if self._schedule is None:
            count = count_micro_batches(len(target), self._stages)
            self._schedule = Schedule1F1B(self._stage, count, loss_fn=self._loss)
        losses: list[Tensor] = []
        if self._rank == 0:
            self._schedule.step(*inputs)
        elif self._rank == self._stages - 1:
            self._schedule.step(target=target, losses=losses)
        else:
            self._schedule.step()
        if self._rank in (0, self._stages - 1):
            dist.all_reduce(self._model.words.weight.grad, group=self._ends)
        return self._stages * torch.stack(losses).mean() if losses else torch.zeros(())


def count_micro_batches(samples: int, stages: int) -> int:
    """Return the largest number of equal micro-batches, up to two per stage."""
    most = min(samples, _MICRO_BATCHES_PER_STAGE * stages)
    return next(count for count in range(most, 0, -1) if samples % count == 0)


class _Stage(nn.Module):
    """The layers of one stage, with the embedding on the first and the output layer on the last."""

    def __init__(self, model: Gpt2, *, first: bool, last: bool) -> None:
        super().__init__()
        self.model, self.first, self.last = model, first, last

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = self.model.embed(x)
        x = self.model.blocks(x)
        return self.model.score(x) if self.last else x
