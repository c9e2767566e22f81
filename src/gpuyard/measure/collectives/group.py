"""The ranks of a bench, what each backend does with them, and the few things that they agree on."""

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import torch
import torch.distributed as dist

from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.run.peers import meet, own_device, synchronize


class RankGroup(Protocol):
    """The ranks as a backend sees them; `part` is one rank's share of the `whole`."""

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
    """gloo on CPUs; NCCL on GPUs, with gloo beside it for what the ranks tell each other."""

    def __init__(self, job: CollectivesJob) -> None:
        self.rank, self.count = job.rank, job.processes
        self.device = own_device(job)
        self._store = meet(job)

    def clock(self) -> float:
        """Now, when the device has done what it was told."""
        synchronize(self.device)
        return perf_counter()

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """The largest over the ranks, one by one."""
        most = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return [float(number) for number in most]

    def zeros(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements, device=self.device)

    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None:
        """One step of a ring: to the next, from the one before."""
        sends = dist.P2POp(dist.isend, out, (self.rank + 1) % self.count)
        receives = dist.P2POp(dist.irecv, into, (self.rank - 1) % self.count)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()

    def send(self, out: torch.Tensor, source: int, target: int) -> None:
        """From one to another; the rest does nothing."""
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
