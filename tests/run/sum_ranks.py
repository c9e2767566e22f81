"""Ranks that say where they are and add up a number each.

`python -m sum_ranks` is a rank, and `python -m sum_ranks PLACE WORKERS LAUNCHER RANKS_PER_NODE` runs them: in
`slurm`, or on hosts, where rank 1 hangs.
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

from gpuyard.files import write_text
from gpuyard.interpreter import import_to_stay
from gpuyard.run.launch import Launcher
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankDevice, RankJob, RankRefusal
from gpuyard.run.rank_process import Emit, serve
from gpuyard.run.ranks import private_directory, run_ranks

_SHOWN = [
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
    """Once all have met, rank `fails` has had enough, `killed` is killed, and `hangs` hangs.

    Before they meet, `lost` says that it has lost a rank that is not here, or `terminated` is, which others lose.
    """

    cores: tuple[int, ...] = ()
    silence_seconds: float = 120
    device: RankDevice = "cpu"
    fails: int | None = None
    killed: int | None = None
    hangs: int | None = None
    lost: int | None = None
    terminated: int | None = None


class Summed(BaseModel):
    event: Literal["summed"] = "summed"
    total: float
    seats: list[dict[str, str]]
    directory_is_shared: bool


_EVENT: TypeAdapter[Summed | RankRefusal] = TypeAdapter(
    Annotated[Summed | RankRefusal, Field(discriminator="event")]
)


def add_up(job: SumJob, emit: Emit) -> None:
    """2 to the power of each rank, so that the sum says who took part."""
    if job.lost is not None or job.terminated is not None:
        _lose_a_peer(job)

    import_to_stay("torch")
    import torch
    from torch import distributed as dist

    from gpuyard.run.peers import Peers

    peers = Peers(job)
    if job.rank == job.fails:
        raise ValueError(f"rank {job.rank} has had enough")
    if job.rank == job.killed:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.rank == job.hangs:
        time.sleep(600)
    part = torch.tensor([2.0**job.rank])
    if job.processes > 1:
        dist.all_reduce(part)
    mine = {name: os.environ[name] for name in _SHOWN if name in os.environ}
    mine["hostname"] = socket.gethostname()
    seats = [json.loads(said) for said in peers.collect(json.dumps(mine))]
    shared = os.path.isdir(job.directory)  # noqa: PTH112
    if job.rank == 0:
        emit(Summed(total=float(part), seats=seats, directory_is_shared=shared))
    peers.leave()


def _lose_a_peer(job: SumJob) -> None:
    named = Path(job.directory) / "terminated.pid"
    if job.rank == job.terminated:
        write_text(named, str(os.getpid()))
        os.kill(os.getpid(), signal.SIGTERM)
    if job.terminated is not None:
        while not named.exists():
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):  # torchrun has seen its end already
            select.select([os.pidfd_open(int(named.read_text()))], [], [])
    elif job.rank != job.lost:
        time.sleep(600)
    raise RuntimeError("connection closed by peer")  # as gloo says it


def summed(place: Place, workers: int, launcher: Launcher = "direct", **told: int | None) -> Summed:
    """What rank 0 of so many ranks in this place says."""
    with private_directory() as directory:
        jobs = [
            SumJob.model_validate(
                {"rank": rank, "processes": workers, "directory": str(directory), **told}
            )
            for rank in range(workers)
        ]
        events = run_ranks(
            place, jobs, parse=_EVENT.validate_json, worker="sum_ranks", launcher=launcher
        )
        (said,) = list(events)
        assert isinstance(said, Summed)
        return said


def _main(where: str, workers: str, launcher: Launcher, ranks_per_node: str) -> None:
    from gpuyard.run.places import allocation, reach_hosts

    asked = int(ranks_per_node) or None
    if where == "slurm":
        place: Place = allocation(asked)
        said = summed(place, int(workers) or sum(place.ranks_by_node), launcher)
    else:
        said = summed(reach_hosts(where.split(","), asked), int(workers), launcher, hangs=1)
    print(said.model_dump_json())  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve(SumJob, add_up)
    _main(*sys.argv[1:])  # type: ignore[arg-type]
