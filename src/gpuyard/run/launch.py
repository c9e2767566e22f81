"""The processes that are started for the ranks, as values: the ranks themselves, or torchrun's agents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpuyard.choices import Launcher
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.places.place import Place, RankPosition, RendezvousPoint
from gpuyard.run.process import Command
from gpuyard.run.protocol import TORCHRUN_BACKEND, RankJob

Environment = Callable[[int], Mapping[str, str]]
"""Returns additional environment variables for a rank."""
_AGENT = "gpuyard.run.torchrun_agent"


@dataclass(frozen=True)
class RankLaunch:
    """A process to start: a rank, or a torchrun agent with all ranks of its node.

    It reads the jobs of its ranks from stdin, one per line, and exits when stdin closes.
    """

    jobs: tuple[RankJob, ...]
    command: Command


def plan_launches(
    place: Place,
    jobs: Sequence[RankJob],
    worker: str,
    launcher: Launcher = "direct",
    environment: Environment = lambda _rank: {},
) -> tuple[RankLaunch, ...]:
    """Plan the processes for these jobs, one job for each rank."""
    ranks = list(zip(place.rank_positions(len(jobs)), jobs, strict=True))
    if launcher == "direct":
        return tuple(
            RankLaunch(
                (job,),
                place.command(
                    position.node,
                    module_argv(worker),
                    _variables(place, position, job, environment),
                ),
            )
            for position, job in ranks
        )
    nodes = 1 + ranks[-1][0].node
    launches = []
    for _, group in groupby(ranks, lambda rank: rank[0].node):
        positions, node_jobs = zip(*group, strict=True)
        first = positions[0]
        argv = _agent_argv(place, first, nodes, node_jobs[0].directory, worker)
        variables = _variables(place, first, node_jobs[0], environment)
        launches.append(RankLaunch(node_jobs, place.command(first.node, argv, variables)))
    return tuple(launches)


def _variables(
    place: Place, position: RankPosition, job: RankJob, environment: Environment
) -> dict[str, str]:
    threads = str(len(job.cores))
    pinned = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} if job.cores else {}
    return {
        **import_path(),
        **pinned,
        **position.environment(place.rendezvous_point),
        **environment(position.rank),
    }


def _agent_argv(
    place: Place, position: RankPosition, nodes: int, directory: str, worker: str
) -> tuple[str, ...]:
    """Build the command of a node's agent; agents on several nodes use the run's own store as rendezvous.

    torchrun's own store would listen on every interface.
    """
    agent = (*module_argv(_AGENT), directory, str(position.local_world_size))
    how_many = (f"--nnodes={nodes}", f"--nproc-per-node={position.local_world_size}")
    there = place.rendezvous_point or RendezvousPoint("127.0.0.1", 0)
    where = (
        f"--rdzv-backend={TORCHRUN_BACKEND}",
        f"--rdzv-endpoint={there.address}:{there.port}",
        f"--rdzv-conf=rank={position.node}",
        "--rdzv-id=gpuyard",
    )
    return (*agent, *how_many, *where, "--max-restarts=0", "--no-python", *module_argv(worker))
