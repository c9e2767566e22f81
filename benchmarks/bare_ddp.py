"""The script that one would write by hand: DDP over gloo, a loop, a clock. Rank 0 prints samples/s.

Usage: bare_ddp.py RANK WORLD BATCH STEPS PORT, once for each rank.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpuyard.workloads.spoken_digits import linear

rank, world, batch, steps, port = map(int, sys.argv[1:])
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
torch.set_num_threads(1)
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
torch.manual_seed(0)
task = linear()
(clips,), digits = task.batch(2000)
model = DistributedDataParallel(task.model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(count: int) -> None:
    for _ in range(count):
        chosen = torch.randint(len(clips), (batch,))
        optimizer.zero_grad()
        loss = task.loss(model(clips[chosen]), digits[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


train(5)
dist.barrier()
start = time.perf_counter()
train(steps)
dist.barrier()
if rank == 0:
    print(steps * batch * world / (time.perf_counter() - start), flush=True)
dist.destroy_process_group()
