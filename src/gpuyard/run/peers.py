"""The process group of a run's ranks, and the values that the ranks exchange."""

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
MAX_TEXT_BYTES = 2**20


def select_device(job: RankJob) -> torch.device:
    """Select this rank's device: the GPU with its local rank, or the CPU."""
    if job.cores:
        torch.set_num_threads(len(job.cores))
    if job.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def join_group(job: RankJob) -> Any:
    """Join the process group through a file on one machine, or through the run's store on several nodes.

    On other hosts and in labs, the environment names the interface for gloo; on this machine it is loopback.
    Keep the returned store as long as the group exists.
    """
    if job.rendezvous is None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        store: Any = dist.FileStore(f"{job.directory}/rendezvous", job.processes)  # type: ignore[attr-defined]
    else:
        from gpuyard.run.store import RunStore, StoreServer

        if job.rendezvous.serves:
            StoreServer(job.rendezvous)
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
    """The ranks of a run; with a single rank every method is the identity."""

    def __init__(self, job: RankJob) -> None:
        self.rank, self.count = job.rank, job.processes
        self.backend = "none"
        if self.count == 1:
            return
        self.backend = "nccl" if job.device == "cuda" else "gloo"
        self._store = join_group(job)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.count > 1:
            dist.all_reduce(torch.zeros(1))  # dist.barrier() would use a GPU stream.

    def broadcast(self, numbers: Sequence[float]) -> list[float]:
        """Return rank 0's numbers."""
        if self.count == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.broadcast(values, src=0)
        return [float(value) for value in values]

    def max(self, numbers: Sequence[float]) -> list[float]:
        """Return the element-wise maximum over the ranks."""
        if self.count == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return [float(value) for value in values]

    def mean(self, numbers: Sequence[float]) -> list[float]:
        """Return the element-wise mean over the ranks."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(number) / self.count for number in total]

    def gather_text(self, text: str) -> list[str]:
        """Return the text of every rank; unpickling objects instead could run code."""
        if self.count == 1:
            return [text]
        data = text.encode()
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(lengths, torch.tensor([len(data)]))
        sizes = [int(length) for length in lengths]
        if not 0 <= min(sizes) <= max(sizes) <= MAX_TEXT_BYTES:
            raise GpuyardError(
                f"a rank sent {max(sizes)} bytes of text; the maximum is {MAX_TEXT_BYTES}"
            )
        padded = torch.zeros(max(1, *sizes), dtype=torch.uint8)
        padded[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded)
        return [
            bytes(values[:size].tolist()).decode(errors="replace")
            for values, size in zip(gathered, sizes, strict=True)
        ]

    def all_reduce_seconds(self, size_bytes: int, device: torch.device) -> float | None:
        """Measure the median time of an all-reduce of float32 values of this total size."""
        if self.count == 1:
            return None
        gradients = torch.zeros(max(1, size_bytes // 4), device=device)
        times: list[float] = []
        for _ in range(1 + _REPEATS):  # The first sets up buffers and is not counted.
            self.barrier()
            start = perf_counter()
            dist.all_reduce(gradients)
            synchronize(device)
            times.extend(self.max([perf_counter() - start]))
            if sum(times) > _ENOUGH_SECONDS and len(times) > 1:
                break
        return median(times[1:])

    def close(self) -> None:
        """Destroy the process group."""
        if self.count > 1:
            dist.destroy_process_group()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
