"""Workers on other hosts, started over ssh without a password.

Each host has gpuyard at the same path as this one. A rank leaves when its ssh connection ends.
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
from typing import ClassVar

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.run.places.place import Meeting, Place, PlaceKind, room_for_ranks
from gpuyard.run.probe import ask
from gpuyard.run.process import Command

_HOST = re.compile(r"(?:\w[\w.-]*@)?\w[\w.:-]*", re.ASCII)
_FORWARDED = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GPUYARD_HOME")


@dataclass(frozen=True)
class OtherMachines(Place):
    """Nodes by name, which share nothing with this machine; rank 0 is on the first."""

    names: tuple[str, ...]
    room: tuple[int, ...] = ()
    """For so many ranks on each; none given: one."""
    gpus: tuple[tuple[str, ...], ...] = ()
    """Of each, as it has said itself; none given: nobody has asked."""
    # below what Linux gives to outgoing connections
    port: int = field(default_factory=lambda: random.randrange(20_000, 30_000))

    why_no_horovod: ClassVar[str | None] = (
        "horovod is measured on this machine and in labs; measure ddp elsewhere"
    )

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.names

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return self.room or (1,) * len(self.names)

    @property
    def gpus_by_node(self) -> tuple[tuple[str, ...], ...]:
        return self.gpus or ((),) * len(self.names)


@dataclass(frozen=True)
class Hosts(OtherMachines):
    """Reached over ssh; the first must be reached by the others by its name here."""

    ssh_config: Path | None = None
    """In which ssh finds these names; else the user's own."""
    python: str | None = None
    """Of every host, where it is not at the path of this one's."""
    directory: str | None = None
    """That commands run in; else the one of here, which every host has."""

    kind: ClassVar[PlaceKind] = "hosts"

    def __post_init__(self) -> None:
        for name in self.names:
            if not _HOST.fullmatch(name):
                raise UserMistake(f"{name!r} is not a host; write names like node1,node2")
        if shutil.which("ssh") is None:
            raise MissingRequirement("hosts are reached over ssh, which is not installed here")

    @property
    def node_addresses(self) -> tuple[str, ...]:
        return tuple(name.rpartition("@")[2] for name in self.names)

    @property
    def meeting(self) -> Meeting:
        return Meeting(self.node_addresses[0], self.port)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        forwarded = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
        variables = {**forwarded, **(environment or {})}
        # ssh hands one line to the other side's shell, so that line is quoted
        if self.python is not None and argv[0] == sys.executable:
            argv = (self.python, *argv[1:])
        chdir = f"--chdir={self.directory or Path.cwd()}"
        there = shlex.join(["env", chdir, *(f"{k}={v}" for k, v in variables.items()), *argv])
        config = () if self.ssh_config is None else ("-F", str(self.ssh_config))
        options = (*config, "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
        return Command(self.names[node], ("ssh", *options, "--", self.names[node], there))


def reach_hosts(names: Sequence[str], ranks_per_node: int | None = None) -> Hosts:
    """These hosts, each asked for its GPUs: it has one rank for each, or as many as are asked for."""
    hosts = Hosts(tuple(names))
    gpus = tuple(found.gpus for found in ask(hosts))
    return replace(
        hosts, room=room_for_ranks([len(each) for each in gpus], ranks_per_node), gpus=gpus
    )
