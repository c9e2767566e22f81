"""The operations that a collectives bench needs from a group of ranks, and their torch.distributed version."""

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import torch
import torch.distributed as dist

from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.run.peers import join_group, select_device, synchronize


class RankGroup(Protocol):
    """A group of ranks; `part` is one rank's share of the `whole`."""

    rank: int
    count: int

    def clock(self) -> float: ...
    def barrier(self) -> None: ...
    def slowest(self, seconds: Sequence[float]) -> list[float]: ...
    def zeros(self, elements: int) -> torch.Tensor: ...
    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None: ...
    def send(self, out: torch.Tensor, source: int, target: int) -> None: ...
    def all_reduce(self, whole: torch.Tensor) -> None: ...
    def broadcast(self, whole: torch.Tensor) -> None: ...
    def reduce(self, whole: torch.Tensor) -> None: ...
    def all_gather(self, part: torch.Tensor, whole: torch.Tensor) -> None: ...
    def reduce_scatter(self, whole: torch.Tensor, part: torch.Tensor) -> None: ...


class TorchGroup:
    """Ranks that use gloo on CPUs, or NCCL on GPUs with gloo for coordination."""

    def __init__(self, job: CollectivesJob) -> None:
        self.rank, self.count = job.rank, job.processes
        self.device = select_device(job)
        self._store = join_group(job)

    def clock(self) -> float:
        """Read the clock after the device has finished all queued work."""
        synchronize(self.device)
        return perf_counter()

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the maximum over all ranks of each number."""
        maxima = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX)
        return [float(number) for number in maxima]

    def zeros(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements, device=self.device)

    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None:
        """Do one step of a ring: send to the next rank and receive from the previous one."""
        send = dist.P2POp(dist.isend, out, (self.rank + 1) % self.count)
        receive = dist.P2POp(dist.irecv, into, (self.rank - 1) % self.count)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()

    def send(self, out: torch.Tensor, source: int, target: int) -> None:
        """Send from one rank to another; the other ranks do nothing."""
        if self.rank == source:
            dist.send(out, target)
        elif self.rank == target:
            dist.recv(out, source)

    def all_reduce(self, whole: torch.Tensor) -> None:
        dist.all_reduce(whole)

    def broadcast(self, whole: torch.Tensor) -> None:
        dist.broadcast(whole, src=0)

    def reduce(self, whole: torch.Tensor) -> None:
        dist.reduce(whole, dst=0)

    def all_gather(self, part: torch.Tensor, whole: torch.Tensor) -> None:
        dist.all_gather_into_tensor(whole, part)

    def reduce_scatter(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        dist.reduce_scatter_tensor(part, whole)

    def leave(self) -> None:
        dist.destroy_process_group()
