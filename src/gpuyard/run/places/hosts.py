"""Workers on other hosts, one a host, started over ssh without a password.

Each host has gpuyard at the same path as this one. A rank leaves when its ssh connection ends.
"""

import os
import random
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.run.launch import Meeting
from gpuyard.run.places.place import Cores, RunPlace, torchrun_environment

_HOST = re.compile(r"^(?:[\w.-]+@)?[A-Za-z0-9_][\w.:-]*$")
_PORTS = (20_000, 30_000)  # below what Linux gives to outgoing connections
_FORWARDED = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GPUYARD_HOME")


@dataclass(frozen=True)
class Hosts:
    """In this order: rank 0 is on the first, which the others must be able to reach by this name."""

    names: tuple[str, ...]
    port: int = field(default_factory=lambda: random.randrange(*_PORTS))
    dilation: float = 1.0
    stop_signal: signal.Signals = signal.SIGKILL

    def __post_init__(self) -> None:
        for name in self.names:
            if not _HOST.match(name):
                raise UserMistake(f"{name!r} is not a host; write names like node1,node2")
        if shutil.which("ssh") is None:
            raise MissingRequirement("hosts are reached over ssh, which is not installed here")

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:  # noqa: ARG002
        if most_workers > len(self.names):
            raise UserMistake(
                f"{most_workers} workers need {most_workers} hosts, {len(self.names)} are named"
            )
        return ((),) * most_workers

    def identity(self) -> Mapping[str, Any]:
        return {"kind": "hosts", "hosts": list(self.names)}

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:
        variables = {
            **torchrun_environment(rank, processes, self.meeting()),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            **{name: os.environ[name] for name in _FORWARDED if name in os.environ},
        }
        # ssh hands one line to the other side's shell, so that line is quoted
        there = shlex.join(
            ["env", f"--chdir={Path.cwd()}", *(f"{k}={v}" for k, v in variables.items()), *argv]
        )
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
        return ["ssh", *options, self.names[rank], there]

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def meeting(self) -> Meeting:
        return Meeting(self.names[0].rpartition("@")[2], self.port)

    def record(self, workers: int) -> RunPlace:
        return RunPlace(kind="hosts", nodes=self.names[:workers])
