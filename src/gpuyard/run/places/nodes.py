"""Workers on the nodes of a lab, one a node."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.lab import Lab, LabPlan
from gpuyard.run.launch import Meeting
from gpuyard.run.places.place import Cores, RunPlace, torchrun_environment

_PORT = 29500  # torchrun's; nothing else listens in a lab's namespaces


@dataclass(frozen=True)
class LabNodes:
    """A lab that is planned, and, once something is to run in it, the lab that is up."""

    plan: LabPlan
    lab: Lab | None = None
    stop_signal: signal.Signals = signal.SIGKILL

    @property
    def dilation(self) -> float:
        return self.plan.dilation

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:
        nodes = self.plan.nodes
        if most_workers > len(nodes):
            raise UserMistake(
                f"{most_workers} workers need {most_workers} nodes, the lab has {len(nodes)}"
            )
        shared = max(sum(core in node.cores for node in nodes) for core in _all_cores(self.plan))
        if computing and shared > max(1.0, self.dilation):
            raise UserMistake(
                f"{shared} nodes of the lab share a core, so real computing would be slowed down by "
                f"the others: dilate time by {shared} or more, or give the nodes a synthetic --gpu"
            )
        return tuple(node.cores for node in nodes[:most_workers])

    def identity(self) -> Mapping[str, Any]:
        plan = self.plan
        return {
            "kind": "lab",
            "rates": [node.rate_bytes_per_second for node in plan.nodes],
            "racks": [node.rack for node in plan.nodes],
            "uplink": plan.uplink_bytes_per_second,
            "latency": plan.latency_seconds,
            "dilation": plan.dilation,
        }

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:  # noqa: ARG002
        return self._up().nodes[rank].command(argv)

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:
        node = self._up().nodes[rank]
        return {
            **torchrun_environment(rank, processes, self.meeting()),
            "GLOO_SOCKET_IFNAME": node.interface,
            "NCCL_SOCKET_IFNAME": node.interface,
        }

    def meeting(self) -> Meeting:
        return Meeting(self.plan.nodes[0].address, _PORT)

    def record(self, workers: int) -> RunPlace:
        used = self.plan.nodes[:workers]
        return RunPlace(
            kind="lab",
            nodes=tuple(node.name for node in used),
            link_bytes_per_second=min(node.rate_bytes_per_second for node in used),
            dilation=self.plan.dilation,
        )

    def _up(self) -> Lab:
        if self.lab is None:
            raise RuntimeError("the lab is planned and not up")
        return self.lab


def _all_cores(plan: LabPlan) -> set[int]:
    return {core for node in plan.nodes for core in node.cores}
