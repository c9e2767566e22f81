"""Workers on this machine, which share its cores evenly."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.run.places.place import Cores, ListenAddress, Place, PlaceKind, RankPosition, RunPlace
from gpuyard.run.probe import cuda_gpus
from gpuyard.run.process import Command


@dataclass(frozen=True)
class LocalMachine(Place):
    """This machine; its ranks use a file for their rendezvous, and communicate over loopback."""

    kind: ClassVar[PlaceKind] = "here"
    on_this_machine: ClassVar[bool] = True

    @property
    def nodes(self) -> tuple[str, ...]:
        return (socket.gethostname(),)

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return (2,)  # The default is the smallest number that communicates.

    @property
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        return (cuda_gpus(),)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        return Command(self.nodes[node], tuple(argv), environment or {})

    def select(self, nodes: Sequence[int], slots: Sequence[int] | None = None) -> Self:
        """Return this machine, the only node; any number of ranks fits on it."""
        del slots
        if set(nodes) != {0}:
            raise ValueError(f"this machine is node 0, not {nodes}")
        return self

    def rank_positions(self, workers: int) -> tuple[RankPosition, ...]:
        return tuple(RankPosition(rank, workers, 0, rank, workers) for rank in range(workers))

    def cores_by_worker(self, max_workers: int, *, computing: bool) -> Cores:
        cores = usable_cores()
        if computing and max_workers > len(cores):
            raise UserMistake(
                f"{max_workers} workers need {max_workers} cores, but gpuyard can use only {len(cores)} on this "
                f"machine; request at most {len(cores)} workers"
            )
        return split_cores(cores, max_workers)

    def identity(self) -> None:
        return None

    def record(self, workers: int) -> RunPlace:
        return RunPlace(ranks_per_node=workers)

    def listen_address(self) -> ListenAddress:
        return ListenAddress(self.nodes, "127.0.0.1", "lo", lambda: None)


def split_cores(cores: Sequence[int], ranks: int) -> Cores:
    """Split the cores evenly; if there are fewer cores than ranks, ranks share cores."""
    if ranks > len(cores):
        return tuple((cores[i % len(cores)],) for i in range(ranks))
    each = len(cores) // ranks
    return tuple(tuple(cores[i * each : (i + 1) * each]) for i in range(ranks))
