"""An MPI rank of a collectives bench: mpiexec runs `python -m gpuyard.measure.collectives.mpi_worker`.

Only rank 0 reads stdin and writes stdout; it broadcasts the job to the other ranks.
"""

import os
import threading
import time
from collections.abc import Sequence

import torch
from mpi4py import MPI

from gpuyard.measure.collectives.exchange import time_collectives
from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.run.rank_process import Emit, serve

_POLL_SECONDS = 0.5


def main() -> None:
    """Run one job and exit."""
    threading.Thread(target=_exit_with_mpiexec, args=(os.getppid(),), daemon=True).start()
    group = MpiGroup()

    def lead(job: CollectivesJob, emit: Emit) -> None:
        group.broadcast_text(job.model_dump_json())
        time_collectives(job, group, emit)

    if group.rank == 0:
        serve(CollectivesJob, lead, at_end=group.leave)
    else:
        job = CollectivesJob.model_validate_json(group.broadcast_text(""))
        time_collectives(job, group, lambda _event: None)
        group.leave()
        os._exit(0)  # immediately: mpiexec kills ranks that are still exiting after rank 0


class MpiGroup:
    """All MPI ranks, on CPUs; tensors are passed to MPI without a copy."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.count = self._world.rank, self._world.size

    def clock(self) -> float:
        return time.perf_counter()

    def barrier(self) -> None:
        self._world.Barrier()

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        maxima = torch.tensor(seconds, dtype=torch.float64)
        self._world.Allreduce(MPI.IN_PLACE, maxima.numpy(), op=MPI.MAX)
        return [float(number) for number in maxima]

    def broadcast_text(self, text: str) -> str:
        """Return rank 0's text on every rank."""
        length = torch.tensor([len(text.encode())])
        self._world.Bcast(length.numpy(), root=0)
        buffer = bytearray(text.encode() if self.rank == 0 else int(length))
        self._world.Bcast([buffer, MPI.BYTE], root=0)
        return buffer.decode()

    def zeros(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None:
        following, previous = (self.rank + 1) % self.count, (self.rank - 1) % self.count
        self._world.Sendrecv(out.numpy(), following, recvbuf=into.numpy(), source=previous)

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


def _exit_with_mpiexec(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
