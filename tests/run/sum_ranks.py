"""Ranks that report where they run and add up one number each.

`python -m sum_ranks` is a rank, and `python -m sum_ranks PLACE WORKERS LAUNCHER RANKS_PER_NODE` runs them, in
`slurm` or on hosts, where rank 1 hangs.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from gpuyard.choices import Launcher
from gpuyard.files import write_text
from gpuyard.interpreter import import_permanently
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankDevice, RankJob, RankRefusal
from gpuyard.run.rank_process import Emit, serve
from gpuyard.run.ranks import private_directory, run_ranks

_VARIABLES = [
    "RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "SLURMD_NODENAME",
    "SSH_CONNECTION",
]


class SumJob(RankJob):
    """After the rendezvous, rank `fails` raises an error, rank `killed` is killed, and rank `hangs` hangs.

    Before the rendezvous, rank `lost` reports a lost peer, or rank `terminated` is terminated and lost by the others.
    """

    cores: tuple[int, ...] = ()
    silence_seconds: float = 120
    device: RankDevice = "cpu"
    fails: int | None = None
    killed: int | None = None
    hangs: int | None = None
    lost: int | None = None
    terminated: int | None = None


class SumResult(BaseModel):
    event: Literal["sum"] = "sum"
    total: float
    ranks: list[dict[str, str]]
    directory_is_shared: bool


_EVENT: TypeAdapter[SumResult | RankRefusal] = TypeAdapter(
    Annotated[SumResult | RankRefusal, Field(discriminator="event")]
)


def run_rank(job: SumJob, emit: Emit) -> None:
    """Add up 2 to the power of each rank, so that the sum identifies the participants."""
    if job.lost is not None or job.terminated is not None:
        _lose_a_peer(job)

    import_permanently("torch")
    import torch
    from torch import distributed as dist

    from gpuyard.run.peers import Peers

    peers = Peers(job)
    if job.rank == job.fails:
        raise ValueError(f"rank {job.rank} fails")
    if job.rank == job.killed:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.rank == job.hangs:
        time.sleep(600)
    part = torch.tensor([2.0**job.rank])
    if job.processes > 1:
        dist.all_reduce(part)
    own = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    own["hostname"] = socket.gethostname()
    ranks = [json.loads(text) for text in peers.gather_text(json.dumps(own))]
    shared = os.path.isdir(job.directory)  # noqa: PTH112
    if job.rank == 0:
        emit(SumResult(total=float(part), ranks=ranks, directory_is_shared=shared))
    peers.close()


def _lose_a_peer(job: SumJob) -> None:
    pid_file = Path(job.directory) / "terminated.pid"
    if job.rank == job.terminated:
        write_text(pid_file, str(os.getpid()))
        os.kill(os.getpid(), signal.SIGTERM)
    if job.terminated is not None:
        while not pid_file.exists():
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):  # torchrun has already reaped it.
            select.select([os.pidfd_open(int(pid_file.read_text()))], [], [])
    elif job.rank != job.lost:
        time.sleep(600)
    raise RuntimeError("connection closed by peer")  # gloo's message


def sum_ranks(
    place: Place, workers: int, launcher: Launcher = "direct", **faults: int | None
) -> SumResult:
    """Run this many ranks at this place, and return rank 0's result."""
    with private_directory() as directory:
        jobs = [
            SumJob.model_validate(
                {"rank": rank, "processes": workers, "directory": str(directory), **faults}
            )
            for rank in range(workers)
        ]
        events = run_ranks(
            place, jobs, parse=_EVENT.validate_json, worker="sum_ranks", launcher=launcher
        )
        (result,) = list(events)
        assert isinstance(result, SumResult)
        return result


def _main(where: str, workers: str, launcher: Launcher, ranks_per_node: str) -> None:
    from gpuyard.run.places import find_allocation, reach_hosts

    per_node = int(ranks_per_node) or None
    if where == "slurm":
        place: Place = find_allocation(per_node)
        result = sum_ranks(place, int(workers) or sum(place.ranks_by_node), launcher)
    else:
        hosts = reach_hosts(where.split(","), per_node)
        result = sum_ranks(hosts, int(workers), launcher, hangs=1)
    print(result.model_dump_json())  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve(SumJob, run_rank)
    _main(*sys.argv[1:])  # type: ignore[arg-type]
