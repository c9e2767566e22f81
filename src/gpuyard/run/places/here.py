"""Workers as processes of this machine, each with as many cores as the others."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.run.places.place import Cores, Listening, Place, PlaceKind, RunPlace, Seat
from gpuyard.run.probe import cuda_gpus
from gpuyard.run.process import Command


@dataclass(frozen=True)
class Here(Place):
    """This machine; its ranks meet through a file and talk over loopback."""

    kind: ClassVar[PlaceKind] = "here"
    on_this_machine: ClassVar[bool] = True

    @property
    def nodes(self) -> tuple[str, ...]:
        return (socket.gethostname(),)

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return (2,)  # where nobody says how many: the fewest that exchange anything

    @property
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        return (cuda_gpus(),)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        return Command(self.nodes[node], tuple(argv), environment or {})

    def seats(self, workers: int) -> tuple[Seat, ...]:
        return tuple(Seat(rank, workers, 0, rank, workers) for rank in range(workers))

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:
        cores = usable_cores()
        if computing and most_workers > len(cores):
            raise UserMistake(
                f"{most_workers} workers need {most_workers} cores, this machine lets gpuyard use "
                f"{len(cores)}; ask for at most {len(cores)} workers"
            )
        return split_cores(cores, most_workers)

    def identity(self) -> None:
        return None

    def record(self, workers: int) -> RunPlace:
        return RunPlace(ranks_per_node=workers)

    def listening(self) -> Listening:
        return Listening(self.nodes, "127.0.0.1", "lo", lambda: None)


def split_cores(cores: Sequence[int], ranks: int) -> Cores:
    """As many for each; where there are fewer cores than ranks, they share them evenly."""
    if ranks > len(cores):
        return tuple((cores[i % len(cores)],) for i in range(ranks))
    each = len(cores) // ranks
    return tuple(tuple(cores[i * each : (i + 1) * each]) for i in range(ranks))
