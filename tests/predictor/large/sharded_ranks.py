"""Trains a small transformer divided among two ranks over gloo, and counts the bytes on the loopback interface.

`python -m tests.predictor.large.sharded_ranks STRATEGY PORT RANK` runs one rank with the code of `gpuyard bench train`.
Rank 0 prints bytes per step of both ranks, and how far the loss is from that of the undivided model. It must run in a
network namespace of its own, so that nothing else uses the interface.
"""

import copy
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gpuyard.measure.training.records import TrainingJob
from gpuyard.measure.training.trainer import Trainer
from gpuyard.specs import Workload
from gpuyard.workloads.zoo.gpt2 import transformer_small
from gpuyard.workloads.zoo.transformer import SelfAttention

RANKS, STEPS, SAMPLES = 2, 4, 4


def sent_bytes() -> int:
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    (loopback,) = (line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(loopback[8])


def main() -> None:
    strategy, port, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    task = transformer_small()
    for module in task.model.modules():  # without dropout, dividing changes nothing
        if isinstance(module, SelfAttention):
            module.dropout = 0.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    whole, (inputs, target) = copy.deepcopy(task.model), task.batch(SAMPLES)
    values: dict[str, Any] = {"strategy": strategy, "workers": RANKS, "seed": 0}
    job = TrainingJob.model_construct(
        **values, workload=Workload(name="small", model="transformer-small")
    )
    trainer = Trainer(task, job, torch.device("cpu"))
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.01)
    for _ in range(2):  # shapes and connections; the second loss shows the first update
        loss = trainer.step(inputs, target)
        optimizer.zero_grad()
        expected = task.loss(whole(*inputs), target)
        expected.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    dist.all_reduce(loss)
    dist.barrier()
    time.sleep(0.2)  # the last acknowledgments
    before = sent_bytes()
    dist.barrier()
    for _ in range(STEPS):
        trainer.step(inputs, target)
    dist.barrier()
    time.sleep(0.2)
    if rank == 0:
        difference = abs(float(loss) / RANKS - float(expected))
        sys.stdout.write(f"{(sent_bytes() - before) / STEPS} {difference}\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
