"""Starts the ranks of a bench, reads their events, and stops them with the bench."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter

from gpuyard.choices import Launcher
from gpuyard.run.launch import Environment
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankJob, RankRefusal
from gpuyard.run.ranks import private_directory, run_ranks
from gpuyard.specs.workload import PackedWorkload

Event = TypeVar("Event")


class WorkloadJob(RankJob):
    """The job of a rank that trains a workload."""

    workload: PackedWorkload


class EventReader(Generic[Event]):
    """Parses the events of ranks: one JSON object per line, with its type in `event`."""

    def __init__(self, events: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(
            Annotated[events | RankRefusal, Field(discriminator="event")]
        )

    def __call__(self, line: bytes) -> Event | RankRefusal:
        event: Event | RankRefusal = self._adapter.validate_json(line)
        return event


@contextlib.contextmanager
def launch_ranks(
    place: Place,
    cores_by_worker: Sequence[tuple[int, ...]],
    job: Callable[..., RankJob],
    *,
    worker: str,
    read: EventReader[Event],
    launcher: Launcher = "direct",
    environment: Environment = lambda _rank: {},
) -> Iterator[Iterator[Event]]:
    """Start the ranks and yield the events of rank 0; stop all ranks at the end.

    `job` builds the job of one rank from the arguments that differ between ranks.
    """
    with private_directory() as directory:
        jobs = [
            job(rank=rank, processes=len(cores_by_worker), directory=str(directory), cores=cores)
            for rank, cores in enumerate(cores_by_worker)
        ]
        with contextlib.closing(
            run_ranks(
                place,
                jobs,
                parse=read,
                worker=worker,
                launcher=launcher,
                environment=environment,
            )
        ) as events:
            yield events
