"""The ranks of a bench as MPI sees them; the same few calls as with torch.distributed."""

from collections.abc import Sequence
from time import perf_counter

import torch
from mpi4py import MPI


class MpiGroup:
    """MPI's world, on CPUs; tensors are handed over without a copy."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.count = self._world.rank, self._world.size

    def clock(self) -> float:
        return perf_counter()

    def barrier(self) -> None:
        self._world.Barrier()

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        most = torch.tensor(seconds, dtype=torch.float64)
        self._world.Allreduce(MPI.IN_PLACE, most.numpy(), op=MPI.MAX)
        return [float(number) for number in most]

    def tell(self, text: str) -> str:
        """What rank 0 says."""
        length = torch.tensor([len(text.encode())])
        self._world.Bcast(length.numpy(), root=0)
        said = bytearray(text.encode() if self.rank == 0 else int(length))
        self._world.Bcast([said, MPI.BYTE], root=0)
        return said.decode()

    def zeros(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None:
        following, before = (self.rank + 1) % self.count, (self.rank - 1) % self.count
        self._world.Sendrecv(out.numpy(), following, recvbuf=into.numpy(), source=before)

    def send(self, out: torch.Tensor, source: int, target: int) -> None:
        if self.rank == source:
            self._world.Send(out.numpy(), target)
        elif self.rank == target:
            self._world.Recv(out.numpy(), source)

    def all_reduce(self, whole: torch.Tensor) -> None:
        self._world.Allreduce(MPI.IN_PLACE, whole.numpy())

    def broadcast(self, whole: torch.Tensor) -> None:
        self._world.Bcast(whole.numpy(), root=0)

    def reduce(self, whole: torch.Tensor) -> None:
        if self.rank == 0:
            self._world.Reduce(MPI.IN_PLACE, whole.numpy(), root=0)
        else:
            self._world.Reduce(whole.numpy(), None, root=0)

    def all_gather(self, part: torch.Tensor, whole: torch.Tensor) -> None:
        self._world.Allgather(part.numpy(), whole.numpy())

    def reduce_scatter(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        self._world.Reduce_scatter_block(whole.numpy(), part.numpy())

    def leave(self) -> None:
        MPI.Finalize()
