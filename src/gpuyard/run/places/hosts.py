"""Workers on other hosts, started over SSH without a password.

Each host has gpuyard at the same path as this one. A rank exits when its SSH connection closes.
"""

import os
import random
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.run.places.place import Place, PlaceKind, RendezvousPoint, count_rank_slots
from gpuyard.run.probe import probe_nodes
from gpuyard.run.process import Command

_HOST = re.compile(r"(?:\w[\w.-]*@)?\w[\w.:-]*", re.ASCII)
_FORWARDED = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GPUYARD_HOME")


@dataclass(frozen=True)
class RemoteMachines(Place):
    """Nodes by name, which share nothing with this machine; rank 0 is on the first."""

    names: tuple[str, ...]
    slots: tuple[int, ...] = ()
    """Ranks per node; empty: one."""
    gpus: tuple[tuple[str, ...], ...] = ()
    """GPUs of each node; empty: unknown."""
    # Linux uses higher ports for outgoing connections.
    port: int = field(default_factory=lambda: random.randrange(20_000, 30_000))

    why_no_horovod: ClassVar[str | None] = (
        "horovod works only on this machine and in labs; measure ddp on other machines"
    )

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.names

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return self.slots or (1,) * len(self.names)

    @property
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        return self.gpus or ((),) * len(self.names)

    def select(self, nodes: Sequence[int], slots: Sequence[int] | None = None) -> Self:
        counts = [self.ranks_by_node[node] for node in nodes] if slots is None else slots
        return replace(
            self,
            names=tuple(self.names[node] for node in nodes),
            slots=tuple(counts),
            gpus=tuple(self.gpus_by_node[node] for node in nodes),
        )


@dataclass(frozen=True)
class Hosts(RemoteMachines):
    """Hosts that are reached over SSH; the others must resolve the name of the first as this machine does."""

    ssh_config: Path | None = None
    """SSH configuration for these names; None: the user's own."""
    python: str | None = None
    """Path of Python on every host; None: the same as here."""
    directory: str | None = None
    """Working directory of commands; None: the same as here."""

    kind: ClassVar[PlaceKind] = "hosts"

    def __post_init__(self) -> None:
        for name in self.names:
            if not _HOST.fullmatch(name):
                raise UserMistake(f"{name!r} is not a valid host; use names like node1,node2")
        if shutil.which("ssh") is None:
            raise MissingRequirement("ssh is not on the PATH; install an SSH client to use --hosts")

    @property
    def node_addresses(self) -> tuple[str, ...]:
        return tuple(name.rpartition("@")[2] for name in self.names)

    @property
    def rendezvous_point(self) -> RendezvousPoint:
        return RendezvousPoint(self.node_addresses[0], self.port)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        names = (
            _FORWARDED if self.directory is None else ()
        )  # others have their own paths and interfaces
        forwarded = {name: os.environ[name] for name in names if name in os.environ}
        variables = {**forwarded, **(environment or {})}
        if self.python is not None and argv[0] == sys.executable:
            argv = (self.python, *argv[1:])
        chdir = f"--chdir={self.directory or Path.cwd()}"
        # ssh passes one line to the remote shell, so the line is quoted.
        remote = shlex.join(["env", chdir, *(f"{k}={v}" for k, v in variables.items()), *argv])
        config = () if self.ssh_config is None else ("-F", str(self.ssh_config))
        options = (*config, "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
        return Command(self.names[node], ("ssh", *options, "--", self.names[node], remote))


def reach_hosts(names: Sequence[str], ranks_per_node: int | None = None) -> Hosts:
    """Return these hosts with one rank per GPU, which each host reports, or with `ranks_per_node`."""
    hosts = Hosts(tuple(names))
    gpus = tuple(node.gpus for node in probe_nodes(hosts))
    slots = count_rank_slots([len(names) for names in gpus], ranks_per_node)
    return replace(hosts, slots=slots, gpus=gpus)
