"""The ranks of a bench: what each is told, what they say, and that none outlives its bench."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter

from gpuyard.run.launch import Environment, Launcher
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankJob, RankRefusal
from gpuyard.run.ranks import private_directory, run_ranks
from gpuyard.specs.workload import PackedWorkload

Event = TypeVar("Event")


class WorkloadJob(RankJob):
    """What a rank that trains is told besides."""

    workload: PackedWorkload


class EventReader(Generic[Event]):
    """Reads what ranks say: one JSON object a line, told apart by its `event`."""

    def __init__(self, events: Any) -> None:
        self._any: TypeAdapter[Any] = TypeAdapter(
            Annotated[events | RankRefusal, Field(discriminator="event")]
        )

    def __call__(self, line: bytes) -> Event | RankRefusal:
        read: Event | RankRefusal = self._any.validate_json(line)
        return read


@contextlib.contextmanager
def running_ranks(
    place: Place,
    cores_by_worker: Sequence[tuple[int, ...]],
    job: Callable[..., RankJob],
    *,
    worker: str,
    read: EventReader[Event],
    launcher: Launcher = "direct",
    environment: Environment = lambda _rank: {},
) -> Iterator[Iterator[Event]]:
    """What rank 0 says, as it comes; `job` is given what differs between the ranks and makes one's job."""
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
