"""Who starts the ranks: gpuyard itself, or torchrun, PyTorch's own launcher, as a value.

A `Crew` is one process that is started and listened to: a rank, or a torchrun agent with its ranks.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Launcher = Literal["torchrun", "direct"]
JOBS_DIRECTORY = "GPUYARD_JOBS"
"""Where ranks that share one stdin find their jobs, by the rank that torchrun gives them."""
FAILED_RANK = "failed-rank"
_AGENT = "gpuyard.run.torchrun_agent"


class Job(Protocol):
    """What every rank is told, whatever it is there for: its place among the others, and where they meet."""

    @property
    def rank(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def cores(self) -> tuple[int, ...]: ...
    @property
    def silence_seconds(self) -> float: ...
    def model_dump_json(self) -> str: ...


@dataclass(frozen=True)
class Meeting:
    """An address of the first host that all others reach, and a port there."""

    address: str
    port: int


@dataclass(frozen=True)
class Crew:
    """The ranks of one process, the first of which names it."""

    jobs: tuple[Job, ...]
    argv: tuple[str, ...]

    @property
    def rank(self) -> int:
        return self.jobs[0].rank

    @property
    def name(self) -> str:
        """Of its file for stderr; ranks that share an agent have their own."""
        return f"rank{self.rank}" if len(self.jobs) == 1 else "agent"

    def failed(self) -> "Crew":
        """Of an agent with several ranks that of the rank which failed, as the agent has noted."""
        try:
            rank = int((Path(self.jobs[0].directory) / FAILED_RANK).read_text())
        except (OSError, ValueError):
            return self
        return Crew(tuple(job for job in self.jobs if job.rank == rank) or self.jobs, self.argv)


def crews(
    jobs: Sequence[Job], worker: str, launcher: Launcher = "direct", meeting: Meeting | None = None
) -> tuple[Crew, ...]:
    """What is started for these jobs.

    Over several hosts there is an agent on each, and they meet at the first. On one host there is one agent
    that opens no port at all: torchrun would listen on every interface.
    """
    start = (sys.executable, "-P", "-m", worker)
    if launcher == "direct":
        return tuple(Crew((job,), start) for job in jobs)
    place = jobs[0].directory
    agent = (sys.executable, "-P", "-m", _AGENT, place)
    run_it = ("--max-restarts=0", "--no-python", *start)
    if meeting is None:
        count = jobs[0].processes
        store = ("--rdzv-backend=c10d", "--rdzv-conf=store_type=file")
        one = (*store, f"--rdzv-endpoint={place}/torchrun", "--rdzv-id=gpuyard", "--nnodes=1")
        local = ("--local-addr=127.0.0.1", f"--nproc-per-node={count}")
        return (Crew(tuple(jobs), (*agent, *one, *local, *run_it)),)
    where = (f"--master-addr={meeting.address}", f"--master-port={meeting.port}")
    return tuple(
        Crew(
            (job,),
            (
                *agent,
                f"--nnodes={job.processes}",
                "--nproc-per-node=1",
                f"--node-rank={job.rank}",
                *where,
                *run_it,
            ),
        )
        for job in jobs
    )
