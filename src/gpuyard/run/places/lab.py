"""Workers on the nodes of a lab."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gpuyard import lab
from gpuyard.errors import UserMistake
from gpuyard.lab import Lab, LabPlan, NodePlan
from gpuyard.run.places.here import split_cores
from gpuyard.run.places.place import Cores, Listening, Meeting, Place, PlaceKind, RunPlace
from gpuyard.run.probe import cuda_gpus
from gpuyard.run.process import Command

_PORT = 29500  # torchrun's; nothing else listens in a lab's namespaces


@dataclass(frozen=True)
class LabNodes(Place):
    """A lab that is planned, and, once something is to run in it, the lab that is up."""

    plan: LabPlan
    lab: Lab | None = None
    ranks_per_node: int = 1

    kind: ClassVar[PlaceKind] = "lab"
    on_this_machine: ClassVar[bool] = True
    emulated: ClassVar[bool] = True

    @property
    def dilation(self) -> float:
        return self.plan.dilation

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.plan.nodes)

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return (self.ranks_per_node,) * len(self.plan.nodes)

    @property
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        return (cuda_gpus(),) * len(self.plan.nodes)

    @property
    def node_addresses(self) -> tuple[str, ...]:
        return tuple(node.address for node in self.plan.nodes)

    @property
    def meeting(self) -> Meeting:
        return Meeting(self.plan.nodes[0].address, _PORT)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        there = self._up().nodes[node]
        interface = {"GLOO_SOCKET_IFNAME": there.interface, "NCCL_SOCKET_IFNAME": there.interface}
        return Command(there.name, tuple(there.command(argv)), {**(environment or {}), **interface})

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:
        seats = self.seats(most_workers)
        by_node = [split_cores(node.cores, self.ranks_per_node) for node in self.plan.nodes]
        used = [core for node in by_node for cores in node for core in cores]
        shared = max(used.count(core) for core in set(used))
        if computing and shared > max(1.0, self.dilation):
            raise UserMistake(
                f"{shared} workers of the lab share a core, so real computing would be slowed down by "
                f"the others: dilate time by {shared} or more, or give them a synthetic --gpu"
            )
        return tuple(by_node[seat.node][seat.local_rank] for seat in seats)

    def ring_link_bytes_per_second(self, workers: int) -> float | None:
        """Where racks are filled one after the other, the ring leaves each once."""
        used = self._used(workers)
        if len(used) == 1:
            return None
        rates = [node.rate_bytes_per_second for node in used]
        uplink = self.plan.uplink_bytes_per_second
        if uplink is not None and len({node.rack for node in used}) > 1:
            rates.append(uplink)
        return min(rates)

    def identity(self) -> Mapping[str, Any]:
        plan = self.plan
        return {
            "kind": "lab",
            "rates": [node.rate_bytes_per_second for node in plan.nodes],
            "racks": [node.rack for node in plan.nodes],
            "uplink": plan.uplink_bytes_per_second,
            "latency": plan.latency_seconds,
            "dilation": plan.dilation,
            **self._room_identity(),
        }

    def record(self, workers: int) -> RunPlace:
        slowest = min(node.rate_bytes_per_second for node in self._used(workers))
        return super().record(workers).model_copy(update={"link_bytes_per_second": slowest})

    def listening(self) -> Listening:
        nodes = self._up().nodes
        # a lab's host names are addresses
        addresses = tuple(node.address for node in nodes)
        return Listening(addresses, addresses[0], nodes[0].interface, nodes[0].enter)

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        if self.lab is not None:
            yield self
            return
        with lab.temporary(self.plan) as made:
            yield type(self)(made.plan, made, self.ranks_per_node)

    def _used(self, workers: int) -> tuple[NodePlan, ...]:
        return self.plan.nodes[: self.seats(workers)[-1].node + 1]

    def _up(self) -> Lab:
        if self.lab is None:
            raise RuntimeError("the lab is planned and not up")
        return self.lab
