"""An MPI rank of a bench of collectives: under mpiexec, `python -m gpuyard.measure.collectives.mpi_worker`.

Only rank 0 has a stdin and a stdout that anybody reads; it tells the others what the job is.
"""

import os
import threading
import time
from collections.abc import Sequence

import torch
from mpi4py import MPI

from gpuyard.measure.collectives.exchange import time_all
from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.run.rank_process import Emit, serve

_LOOK_SECONDS = 0.5


def main() -> None:
    """Run one job and exit."""
    threading.Thread(target=_leave_with_mpiexec, args=(os.getppid(),), daemon=True).start()
    group = MpiGroup()

    def lead(job: CollectivesJob, emit: Emit) -> None:
        group.tell(job.model_dump_json())
        time_all(job, group, emit)

    if group.rank == 0:
        serve(CollectivesJob, lead, at_end=group.leave)
    else:
        time_all(CollectivesJob.model_validate_json(group.tell("")), group, lambda _event: None)
        group.leave()
        os._exit(0)  # at once: mpiexec kills who is still leaving when rank 0 has gone


class MpiGroup:
    """MPI's world, on CPUs: the same few calls as with torch.distributed. Tensors are handed over without a copy."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.count = self._world.rank, self._world.size

    def clock(self) -> float:
        return time.perf_counter()

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


def _leave_with_mpiexec(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
