"""The interface of all places: nodes with slots for ranks, and the commands that start processes on them."""

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
    """The place of a measurement, and the rate of its links if gpuyard emulated them."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # A newer gpuyard may add keys.

    kind: PlaceKind = "here"
    nodes: Annotated[tuple[str, ...], Field(description="nodes with workers, in order")] = ()
    ranks_per_node: Annotated[
        int | None,
        Field(
            description="ranks on the first node; the last may have fewer; None: one, or all here"
        ),
    ] = None
    gpus: Annotated[
        tuple[str, ...],
        Field(description="GPUs of the first node; empty: see the provenance"),
    ] = ()
    link_bytes_per_second: Annotated[
        float | None,
        Field(description="rate of the slowest link, each direction; None: unknown"),
    ] = None
    dilation: Annotated[
        float,
        Field(description="factor by which it really ran slower; all times here are undilated"),
    ] = 1.0


@dataclass(frozen=True)
class RendezvousPoint:
    """An address of the first node that all others can reach, and a port."""

    address: str
    port: int


@dataclass(frozen=True)
class ListenAddress:
    """An address at which this process can listen for the ranks, and the addresses of their nodes."""

    node_addresses: tuple[str, ...]
    address: str
    interface: str
    enter: Callable[[], None]
    """Moves the calling thread to the network of that address."""


@dataclass(frozen=True)
class RankPosition:
    """The node and the local rank of one rank. Nodes are filled one after the other."""

    rank: int
    world_size: int
    node: int
    local_rank: int
    local_world_size: int

    def environment(self, rendezvous_point: RendezvousPoint | None) -> dict[str, str]:
        """Return the variables that torchrun would set, for user code that runs without torchrun."""
        variables = {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "GROUP_RANK": str(self.node),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }
        if rendezvous_point is None:
            return variables
        return {
            **variables,
            "MASTER_ADDR": rendezvous_point.address,
            "MASTER_PORT": str(rendezvous_point.port),
        }


class Place(ABC):
    """Nodes with slots for ranks. No process starts before the run does."""

    kind: ClassVar[PlaceKind]
    on_this_machine: ClassVar[bool] = False
    """True if its nodes use the cores, memory, and GPUs of this machine."""
    emulated: ClassVar[bool] = False
    """True if gpuyard shapes its links, so that their rates are known."""
    why_no_horovod: ClassVar[str | None] = None
    """The reason why Horovod does not work: its ranks must be able to connect to this process."""

    @property
    @abstractmethod
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, in the order in which they get ranks."""

    @property
    @abstractmethod
    def ranks_by_node(self) -> tuple[int, ...]:
        """The number of rank slots of each node."""

    @property
    @abstractmethod
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        """The names of each node's GPUs that torch can use."""

    @property
    def dilation(self) -> float:
        """The factor by which everything runs slower than the emulated system."""
        return 1.0

    @property
    def rendezvous_point(self) -> RendezvousPoint | None:
        """The rendezvous of ranks on several nodes; None: all ranks are on this machine and use a file."""
        return None

    @property
    def node_addresses(self) -> tuple[str, ...]:
        """The network addresses of the nodes, or their names if the addresses are unknown."""
        return self.nodes

    @abstractmethod
    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        """Return the command that starts `argv` on this node with these variables."""

    @abstractmethod
    def select(self, nodes: Sequence[int], slots: Sequence[int] | None = None) -> Self:
        """Return the place with only these nodes, by index, and with this number of rank slots on each."""

    def rank_positions(self, workers: int) -> tuple[RankPosition, ...]:
        """Assign each rank to a node; raise if there are too few slots."""
        counts: list[int] = []
        for slots in self.ranks_by_node:
            counts.append(min(slots, workers - sum(counts)))
        local = [(node, i, ranks) for node, ranks in enumerate(counts) for i in range(ranks)]
        if len(local) < workers:
            nodes = "node" if len(self.nodes) == 1 else "nodes"
            raise UserMistake(
                f"{workers} workers do not fit: {len(self.nodes)} {nodes} with up to {max(self.ranks_by_node)} each "
                f"have {sum(self.ranks_by_node)} slots; add nodes, or set --ranks-per-node"
            )
        return tuple(RankPosition(rank, workers, *where) for rank, where in enumerate(local))

    def describe_ranks(self, workers: int) -> list[dict[str, Any]]:
        """Describe the positions for `--dry-run` and programs."""
        return [
            {
                "rank": position.rank,
                "node": self.nodes[position.node],
                "local_rank": position.local_rank,
            }
            for position in self.rank_positions(workers)
        ]

    def cores_by_worker(self, max_workers: int, *, computing: bool) -> Cores:  # noqa: ARG002
        """Return the cores for each worker, empty if the node decides; raise if there are too few.

        Workers that do not compute, because their GPU is synthetic, may share cores.
        """
        return tuple(() for _ in self.rank_positions(max_workers))

    @property
    def host_cores(self) -> tuple[int, ...]:
        """The cores of this machine that its nodes share, if workers are not assigned to cores."""
        return ()

    def host_processes(self) -> tuple[int, ...]:
        """Return the processes of this machine whose children its nodes run, in addition to this one."""
        return ()

    def missing_gpus(self, workers: int) -> str | None:
        """Return an error message if a node has fewer GPUs than ranks."""
        for position in self.rank_positions(workers):
            gpus = len(self.gpus_by_node[position.node])
            if position.local_world_size > gpus:
                where = "this machine" if self.on_this_machine else self.nodes[position.node]
                needed = position.local_world_size
                return f"{needed} workers need {needed} GPUs, {where} has {gpus}"
        return None

    def ring_link_bytes_per_second(self, workers: int) -> float | None:  # noqa: ARG002
        """Return the rate of the slowest link in a ring of all ranks in order; None if it is unknown."""
        return None

    def identity(self) -> Mapping[str, Any] | None:
        """Return the properties that distinguish measurements at this place from those on this machine; None: none."""
        return {"kind": self.kind, "hosts": list(self.nodes), **self._slots_identity()}

    def record(self, workers: int) -> RunPlace:
        """Return the description that is stored with a measurement."""
        rank_positions = self.rank_positions(workers)
        return RunPlace(
            kind=self.kind,
            nodes=self.nodes[: rank_positions[-1].node + 1],
            ranks_per_node=rank_positions[0].local_world_size,
            gpus=() if self.on_this_machine else self.gpus_by_node[0],
            dilation=self.dilation,
        )

    def listen_address(self) -> ListenAddress | None:
        """Return the address at which this process can listen for the ranks; None if it is on none of their nodes."""
        return None

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        """Set up everything that processes at this place need."""
        yield self

    def _slots_identity(self) -> dict[str, Any]:
        # With one rank per node, the keys of stored measurements stay the same.
        slots = self.ranks_by_node
        return {} if set(slots) == {1} else {"ranks_by_node": list(slots)}


def count_rank_slots(gpus_by_node: Sequence[int], ranks_per_node: int | None) -> tuple[int, ...]:
    """Return the slots of each node: `ranks_per_node`, or one per GPU and at least one."""
    return tuple(ranks_per_node or max(1, gpus) for gpus in gpus_by_node)
