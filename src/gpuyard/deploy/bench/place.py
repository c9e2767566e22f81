"""A deployment's machines as the place of a bench: it sets link rates and, in a lab, watches this host."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gpuyard import lab
from gpuyard.cpu import usable_cores
from gpuyard.deploy.state import StateDirectory
from gpuyard.lab.machines import LabMachine
from gpuyard.run.places.hosts import Hosts
from gpuyard.run.places.place import ListenAddress, RunPlace
from gpuyard.termination import exit_on_signals


@dataclass(frozen=True)
class DeployedHosts(Hosts):
    """A deployment's machines as a place to run. If the target can set link rates, they are set during a run."""

    link_bytes_per_second: float | None = None
    """Rate between machines; None if it is unknown."""
    set_link: Callable[[float], None] | None = None
    usual_link_bytes_per_second: float | None = None
    """The rate that is restored after a run."""

    def ring_link_bytes_per_second(self, workers: int) -> float | None:
        one_machine = self.rank_positions(workers)[-1].node == 0
        return None if one_machine else self.link_bytes_per_second

    def identity(self) -> Mapping[str, Any] | None:
        link = self.link_bytes_per_second
        return {**(super().identity() or {}), **({} if link is None else {"link": link})}

    def record(self, workers: int) -> RunPlace:
        place = super().record(workers)
        return place.model_copy(update={"link_bytes_per_second": self.link_bytes_per_second})

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        if self.set_link is None or self.link_bytes_per_second is None:
            yield self
            return
        with exit_on_signals():
            self.set_link(self.link_bytes_per_second)
            try:
                yield self
            finally:
                self.set_link(self.usual_link_bytes_per_second or self.link_bytes_per_second)


@dataclass(frozen=True)
class LabMachines(DeployedHosts):
    """Machines of a lab, which share this host's cores. Horovod's ranks can reach this process through the lab."""

    state: StateDirectory | None = None

    why_no_horovod: ClassVar[str | None] = None

    @property
    def host_cores(self) -> tuple[int, ...]:
        return tuple(usable_cores())

    def host_processes(self) -> tuple[int, ...]:
        if self.state is None:
            return ()
        disks = (self.state.path / "disks" / name for name in self.names)
        machines = (LabMachine(disk.name, disk).first_process for disk in disks)
        return tuple(pid for pid in machines if pid is not None)

    def listen_address(self) -> ListenAddress | None:
        if self.state is None:
            return None
        nodes = lab.find(self.state.name).nodes
        addresses = tuple(node.address for node in nodes)
        return ListenAddress(addresses, addresses[0], nodes[0].interface, nodes[0].enter)
