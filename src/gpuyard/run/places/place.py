"""What every place has in common: nodes with room for ranks, how a process starts on one, a record."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.errors import UserMistake
from gpuyard.run.process import Command

Cores = tuple[tuple[int, ...], ...]
PlaceKind = Literal["here", "lab", "hosts", "slurm"]


class RunPlace(BaseModel):
    """Where the workers ran, and the links between them where gpuyard made these."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys

    kind: PlaceKind = "here"
    nodes: Annotated[tuple[str, ...], Field(description="that had workers, in their order")] = ()
    ranks_per_node: Annotated[
        int | None,
        Field(description="on the first node, the last may have fewer; None: one, or all here"),
    ] = None
    gpus: Annotated[
        tuple[str, ...],
        Field(description="of the first node, as it said; none: see the provenance"),
    ] = ()
    link_bytes_per_second: Annotated[
        float | None,
        Field(description="of the slowest node's link, each direction; None: not known"),
    ] = None
    dilation: Annotated[
        float,
        Field(description="how many times slower it really ran; all times here are undilated"),
    ] = 1.0


@dataclass(frozen=True)
class Meeting:
    """An address of the first node that all others reach, and a port there."""

    address: str
    port: int


@dataclass(frozen=True)
class Listening:
    """Where this process itself can listen so that ranks reach it, and what they call their nodes."""

    node_addresses: tuple[str, ...]
    address: str
    interface: str
    enter: Callable[[], None]


@dataclass(frozen=True)
class Seat:
    """Which rank sits on which node. Nodes are filled one after the other."""

    rank: int
    world_size: int
    node: int
    local_rank: int
    local_world_size: int

    def environment(self, meeting: Meeting | None) -> dict[str, str]:
        """As torchrun sets it, so that a user's code finds it without torchrun, too."""
        variables = {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "GROUP_RANK": str(self.node),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }
        if meeting is None:
            return variables
        return {**variables, "MASTER_ADDR": meeting.address, "MASTER_PORT": str(meeting.port)}


class Place(ABC):
    """Nodes with room for ranks. No process is started before a run begins."""

    kind: ClassVar[PlaceKind]
    on_this_machine: ClassVar[bool] = False
    """Its nodes' cores, memory and GPUs are those of this machine."""
    emulated: ClassVar[bool] = False
    """Its links are shaped by gpuyard, so their rates are known."""
    why_no_horovod: ClassVar[str | None] = None
    """A sentence where Horovod's ranks can't be started; they meet where this process listens."""

    @property
    @abstractmethod
    def nodes(self) -> tuple[str, ...]:
        """Their names; ranks come to them in this order."""

    @property
    @abstractmethod
    def ranks_by_node(self) -> tuple[int, ...]:
        """How many ranks each node has room for."""

    @property
    @abstractmethod
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        """The GPUs of each node that torch can use, by name."""

    @property
    def dilation(self) -> float:
        """How many times slower everything runs than it is meant to."""
        return 1.0

    @property
    def meeting(self) -> Meeting | None:
        """Where ranks on several nodes meet; None: all are on this machine, and meet through a file."""
        return None

    @property
    def node_addresses(self) -> tuple[str, ...]:
        """What the nodes are called on a network; where that is not known, their names."""
        return self.nodes

    @abstractmethod
    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        """What starts `argv` on this node, with this in its environment."""

    def seats(self, workers: int) -> tuple[Seat, ...]:
        """One for each rank; raises where there is no room for them."""
        taken: list[tuple[int, int]] = []
        for node, room in enumerate(self.ranks_by_node):
            left = workers - sum(ranks for _, ranks in taken)
            if left > 0:
                taken.append((node, min(room, left)))
        local = [(node, i, ranks) for node, ranks in taken for i in range(ranks)]
        if len(local) < workers:
            raise UserMistake(self._no_room(workers))
        return tuple(Seat(rank, workers, *where) for rank, where in enumerate(local))

    def describe_seats(self, workers: int) -> list[dict[str, Any]]:
        """For `--dry-run` and programs."""
        return [
            {"rank": seat.rank, "node": self.nodes[seat.node], "local_rank": seat.local_rank}
            for seat in self.seats(workers)
        ]

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:  # noqa: ARG002
        """The cores to pin each worker to; none where the node decides. Raises where there is no room.

        Workers that don't compute, because their GPU is synthetic, may share cores.
        """
        return tuple(() for _ in self.seats(most_workers))

    def missing_gpus(self, workers: int) -> str | None:
        """A sentence where a node has fewer GPUs than ranks of so many workers."""
        for seat in self.seats(workers):
            gpus = len(self.gpus_by_node[seat.node])
            if seat.local_world_size > gpus:
                where = "this machine" if self.on_this_machine else self.nodes[seat.node]
                needed = seat.local_world_size
                return f"{needed} workers need {needed} GPUs, {where} has {gpus}"
        return None

    def ring_link_bytes_per_second(self, workers: int) -> float | None:  # noqa: ARG002
        """Of the slowest link that a ring in the order of ranks passes; None: not known."""
        return None

    def identity(self) -> Mapping[str, Any] | None:
        """What makes a measurement here another one than on this machine alone; None: nothing."""
        return {"kind": self.kind, "hosts": list(self.nodes), **self._room_identity()}

    def record(self, workers: int) -> RunPlace:
        """What is kept of it with the measurement."""
        seats = self.seats(workers)
        return RunPlace(
            kind=self.kind,
            nodes=self.nodes[: seats[-1].node + 1],
            ranks_per_node=seats[0].local_world_size,
            gpus=() if self.on_this_machine else self.gpus_by_node[0],
            dilation=self.dilation,
        )

    def listening(self) -> Listening | None:
        """Where this process can listen for the ranks; None: it is on none of their nodes."""
        return None

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        """The place with everything that has to be made before a process can start there."""
        yield self

    def _room_identity(self) -> dict[str, Any]:
        # only what is new: with one rank a node the keys of measurements are as they always were
        room = self.ranks_by_node
        return {} if set(room) == {1} else {"ranks_by_node": list(room)}

    def _no_room(self, workers: int) -> str:
        most, room = max(self.ranks_by_node), sum(self.ranks_by_node)
        nodes = "node" if len(self.nodes) == 1 else "nodes"
        return (
            f"{workers} workers don't fit: {len(self.nodes)} {nodes} with up to {most} each have room "
            f"for {room}; add nodes, or set --ranks-per-node"
        )


def room_for_ranks(gpus_by_node: Sequence[int], ranks_per_node: int | None) -> tuple[int, ...]:
    """As many ranks on each node as were asked for, else one for each of its GPUs, and at least one."""
    return tuple(ranks_per_node or max(1, gpus) for gpus in gpus_by_node)
