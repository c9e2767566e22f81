"""Who starts the ranks: gpuyard itself, or torchrun, PyTorch's own launcher, as a value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.places.place import Meeting, Place, Seat
from gpuyard.run.process import Command
from gpuyard.run.protocol import TORCHRUN_BACKEND, RankJob

Launcher = Literal["torchrun", "direct"]
Environment = Callable[[int], Mapping[str, str]]
"""What a rank's environment has beside what its place and its seat say."""
_AGENT = "gpuyard.run.torchrun_agent"


@dataclass(frozen=True)
class Crew:
    """One process that is started and listened to: a rank, or a torchrun agent with all ranks of its node.

    It reads the jobs of its ranks from stdin, one a line, and leaves when stdin ends.
    """

    jobs: tuple[RankJob, ...]
    command: Command


def crews(
    place: Place,
    jobs: Sequence[RankJob],
    worker: str,
    launcher: Launcher = "direct",
    environment: Environment = lambda _rank: {},
) -> tuple[Crew, ...]:
    """What is started for these jobs, one for each rank."""
    seated = list(zip(place.seats(len(jobs)), jobs, strict=True))
    if launcher == "direct":
        return tuple(
            Crew(
                (job,),
                place.command(
                    seat.node, module_argv(worker), _variables(place, seat, job, environment)
                ),
            )
            for seat, job in seated
        )
    nodes = 1 + seated[-1][0].node
    started = []
    for _, group in groupby(seated, lambda one: one[0].node):
        seats, ours = zip(*group, strict=True)
        argv = _agent_argv(place, seats[0], nodes, ours[0].directory, worker)
        variables = _variables(place, seats[0], ours[0], environment)
        started.append(Crew(ours, place.command(seats[0].node, argv, variables)))
    return tuple(started)


def _variables(place: Place, seat: Seat, job: RankJob, environment: Environment) -> dict[str, str]:
    threads = str(len(job.cores))
    pinned = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} if job.cores else {}
    return {
        **import_path(),
        **pinned,
        **seat.environment(place.meeting),
        **environment(seat.rank),
    }


def _agent_argv(
    place: Place, seat: Seat, nodes: int, directory: str, worker: str
) -> tuple[str, ...]:
    """Over several nodes there is an agent on each, and they meet through the run's own store.

    torchrun's own would listen on every interface; on this machine there is one agent, which needs none.
    """
    agent = (*module_argv(_AGENT), directory, str(seat.local_world_size))
    how_many = (f"--nnodes={nodes}", f"--nproc-per-node={seat.local_world_size}")
    there = place.meeting or Meeting("127.0.0.1", 0)
    where = (
        f"--rdzv-backend={TORCHRUN_BACKEND}",
        f"--rdzv-endpoint={there.address}:{there.port}",
        f"--rdzv-conf=rank={seat.node}",
        "--rdzv-id=gpuyard",
    )
    return (*agent, *how_many, *where, "--max-restarts=0", "--no-python", *module_argv(worker))
