"""Workers on the nodes of a lab."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gpuyard import lab
from gpuyard.errors import UserMistake
from gpuyard.lab import Lab, LabPlan, NodePlan
from gpuyard.run.places.local_machine import split_cores
from gpuyard.run.places.place import (
    Cores,
    ListenAddress,
    Place,
    PlaceKind,
    RendezvousPoint,
    RunPlace,
)
from gpuyard.run.probe import cuda_gpus
from gpuyard.run.process import Command

_PORT = 29500  # torchrun's default; nothing else listens in a lab's namespaces.


@dataclass(frozen=True)
class LabNodes(Place):
    """A planned lab and, once it is up, the lab itself."""

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
    def rendezvous_point(self) -> RendezvousPoint:
        return RendezvousPoint(self.plan.nodes[0].address, _PORT)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        lab_node = self._running_lab().nodes[node]
        interface = lab_node.interface
        variables = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        argv = tuple(lab_node.command(argv))
        return Command(lab_node.name, argv, {**(environment or {}), **variables})

    def cores_by_worker(self, max_workers: int, *, computing: bool) -> Cores:
        rank_positions = self.rank_positions(max_workers)
        by_node = [split_cores(node.cores, self.ranks_per_node) for node in self.plan.nodes]
        used = [core for node in by_node for cores in node for core in cores]
        shared = max(used.count(core) for core in set(used))
        if computing and shared > max(1.0, self.dilation):
            raise UserMistake(
                f"{shared} workers of the lab share a core, so they would slow each other's computation down; "
                f"set --dilation to {shared} or more, or use a synthetic --gpu"
            )
        return tuple(by_node[position.node][position.local_rank] for position in rank_positions)

    def select(self, nodes: Sequence[int], slots: Sequence[int] | None = None) -> Self:
        if slots is not None and len(set(slots)) != 1:
            raise ValueError("all nodes of a lab have the same number of ranks")
        plan = replace(self.plan, nodes=tuple(self.plan.nodes[node] for node in nodes))
        running = self.lab and Lab(plan, tuple(self.lab.nodes[node] for node in nodes))
        ranks = self.ranks_per_node if slots is None else slots[0]
        return replace(self, plan=plan, lab=running, ranks_per_node=ranks)

    def ring_link_bytes_per_second(self, workers: int) -> float | None:
        """Return the slowest rate; the racks are filled in order, so the ring leaves each rack once."""
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
            **self._slots_identity(),
        }

    def record(self, workers: int) -> RunPlace:
        slowest = min(node.rate_bytes_per_second for node in self._used(workers))
        return super().record(workers).model_copy(update={"link_bytes_per_second": slowest})

    def listen_address(self) -> ListenAddress:
        nodes = self._running_lab().nodes
        addresses = tuple(node.address for node in nodes)
        return ListenAddress(addresses, addresses[0], nodes[0].interface, nodes[0].enter)

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        if self.lab is not None:
            yield self
            return
        with lab.temporary(self.plan) as created:
            yield type(self)(created.plan, created, self.ranks_per_node)

    def _used(self, workers: int) -> tuple[NodePlan, ...]:
        return self.plan.nodes[: self.rank_positions(workers)[-1].node + 1]

    def _running_lab(self) -> Lab:
        if self.lab is None:
            raise RuntimeError("the lab is not up")
        return self.lab


@contextlib.contextmanager
def open_lab(text: str, ranks_per_node: int = 1, *, planning: bool = False) -> Iterator[LabNodes]:
    """Open a running lab by its name, or a temporary one like 4x1Gbit, which is not created for `planning`."""
    plan = lab.plan_from_text(text, name=f"bench-{os.getpid()}")
    if plan is None:
        running_lab = lab.find(text)
        with running_lab.held():
            yield LabNodes(running_lab.plan, running_lab, ranks_per_node)
        return
    planned = LabNodes(plan, ranks_per_node=ranks_per_node)
    with contextlib.nullcontext(planned) if planning else planned.up() as nodes:
        yield nodes
