"""A training loop as one would write it by hand: DDP over gloo, a loop, and a timer."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpuyard.workloads.spoken_digits import linear


class BareLoop:
    """Train the linear spoken-digit model in the current process group."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(0)
        self.task = linear()
        (self.clips,), self.digits = self.task.batch(2000)
        self.model = DistributedDataParallel(self.task.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch = batch

    def train(self, steps: int) -> None:
        for _ in range(steps):
            chosen = torch.randint(len(self.clips), (self.batch,))
            self.optimizer.zero_grad()
            loss = self.task.loss(self.model(self.clips[chosen]), self.digits[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

    def window_seconds(self, steps: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        self.train(steps)
        dist.barrier()
        return time.perf_counter() - start
