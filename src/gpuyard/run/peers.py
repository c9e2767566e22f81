"""The ranks of one run and the few things that they have to agree on."""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from gpuyard.errors import GpuyardError
from gpuyard.run.protocol import RankJob

_REPEATS = 7
_ENOUGH_SECONDS = 1.0
MOST_TEXT_BYTES = 2**20


def own_device(job: RankJob) -> torch.device:
    """What this rank computes on: of its node's GPUs that with its local rank, or its cores."""
    if job.cores:
        torch.set_num_threads(len(job.cores))
    if job.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def meet(job: RankJob) -> Any:
    """Let the ranks find each other: through a file where they are on one machine, else through the run's store.

    Who starts them on other hosts, or in the namespaces of a lab, says which interface gloo may use; the
    ranks of this machine alone stay on its loopback. What is returned has to be kept as long as they talk.
    """
    if job.rendezvous is None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        store: Any = dist.FileStore(f"{job.directory}/rendezvous", job.processes)  # type: ignore[attr-defined]
    else:
        from gpuyard.run.store import RunStore, StoreKeeper

        if job.rendezvous.keeps:
            StoreKeeper(job.rendezvous)
        store = RunStore(job.rendezvous, job.silence_seconds)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if job.device == "cuda" else "gloo",
        store=dist.PrefixStore("ranks", store),  # type: ignore[attr-defined]
        rank=job.rank,
        world_size=job.processes,
        timeout=timedelta(seconds=job.silence_seconds),
    )
    return store


class Peers:
    """With one process every method is the identity, and nothing is set up."""

    def __init__(self, job: RankJob) -> None:
        self.rank, self.count = job.rank, job.processes
        self.backend = "none"
        if self.count == 1:
            return
        self.backend = "nccl" if job.device == "cuda" else "gloo"
        self._store = meet(job)

    def barrier(self) -> None:
        """Wait for all."""
        if self.count > 1:
            dist.all_reduce(torch.zeros(1))  # dist.barrier() would pick a GPU's stream

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """What rank 0 says."""
        if self.count == 1:
            return list(numbers)
        said = torch.tensor(numbers, dtype=torch.float64)
        dist.broadcast(said, src=0)
        return [float(number) for number in said]

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """The largest over the ranks, one by one."""
        if self.count == 1:
            return list(seconds)
        most = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return [float(number) for number in most]

    def mean(self, numbers: Sequence[float]) -> list[float]:
        """The mean over the ranks, one by one."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(number) / self.count for number in total]

    def collect(self, text: str) -> list[str]:
        """What every rank says, by rank: as text, since an object that is unpickled runs code."""
        if self.count == 1:
            return [text]
        said = text.encode()
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(lengths, torch.tensor([len(said)]))
        sizes = [int(length) for length in lengths]
        if not 0 <= min(sizes) <= max(sizes) <= MOST_TEXT_BYTES:
            raise GpuyardError(
                f"a rank has {max(sizes)} bytes to say, and {MOST_TEXT_BYTES} are the most"
            )
        padded = torch.zeros(max(1, *sizes), dtype=torch.uint8)
        padded[: len(said)] = torch.tensor(list(said), dtype=torch.uint8)
        heard = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(heard, padded)
        return [
            bytes(one[:size].tolist()).decode(errors="replace")
            for one, size in zip(heard, sizes, strict=True)
        ]

    def all_reduce_seconds(self, size_bytes: int, device: torch.device) -> float | None:
        """The median time of a bare all-reduce of so many bytes of float32."""
        if self.count == 1:
            return None
        gradients = torch.zeros(max(1, size_bytes // 4), device=device)
        took: list[float] = []
        for _ in range(1 + _REPEATS):  # the first sets up buffers and is not counted
            self.barrier()
            start = perf_counter()
            dist.all_reduce(gradients)
            synchronize(device)
            took.extend(self.slowest([perf_counter() - start]))
            if sum(took) > _ENOUGH_SECONDS and len(took) > 1:
                break
        return median(took[1:])

    def leave(self) -> None:
        """Take the process group down in good order."""
        if self.count > 1:
            dist.destroy_process_group()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was told; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
