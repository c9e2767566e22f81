"""Trains a small transformer divided among two ranks over gloo, and counts the bytes on the loopback interface.

`python -m tests.predictor.large.sharded_ranks MODE PORT RANK` runs one rank; rank 0 prints bytes per step of both ranks.
It must run in a network namespace of its own, so that nothing else uses the interface.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
from torch.nn import functional

RANKS, STEPS, LAYERS, HIDDEN, HEADS, FFN, SAMPLES, TOKENS, MICRO_BATCHES = (
    2,
    4,
    4,
    256,
    8,
    1024,
    4,
    128,
    4,
)


class Block(nn.Module):
    """A layer without biases, norms, or embeddings: matrices and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.keys = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.values = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, FFN, bias=False), nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, _ = x.shape
        query, key, value = (
            projection(x).view(samples, length, -1, HIDDEN // HEADS).transpose(1, 2)
            for projection in (self.queries, self.keys, self.values)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(samples, length, -1))
        return x + self.down(functional.gelu(self.up(x)))  # type: ignore[no-any-return]


def sent_bytes() -> int:
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    (loopback,) = (line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(loopback[8])


def build_step(mode: str, rank: int) -> Callable[[], object]:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(*(Block() for _ in range(LAYERS))),
        torch.randn(SAMPLES, TOKENS, HIDDEN),
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    if mode == "pipeline":
        half = LAYERS // RANKS
        stage = PipelineStage(
            model[rank * half : (rank + 1) * half], rank, RANKS, torch.device("cpu")
        )
        schedule = Schedule1F1B(
            stage, MICRO_BATCHES, loss_fn=lambda output, target: (output - target).pow(2).mean()
        )
        return (lambda: schedule.step(x)) if rank == 0 else (lambda: schedule.step(target=x))
    if mode == "fsdp":
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        plan = {name: ColwiseParallel() for name in ("queries", "keys", "values", "up")}
        for block in model:
            parallelize_module(
                block, mesh, {**plan, "output": RowwiseParallel(), "down": RowwiseParallel()}
            )
    # a stage above would need the gradient of the input, too
    x.requires_grad_()

    def step() -> None:
        model(x).pow(2).mean().backward()

    return step


def main() -> None:
    mode, port, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    step = build_step(mode, rank)
    step()  # shapes and connections
    dist.barrier()
    time.sleep(0.2)  # the last acknowledgments
    before = sent_bytes()
    dist.barrier()
    for _ in range(STEPS):
        step()
    dist.barrier()
    time.sleep(0.2)
    if rank == 0:
        sys.stdout.write(f"{(sent_bytes() - before) / STEPS}\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
