"""Workers on the nodes of the Slurm allocation that gpuyard itself runs in, one a node, by srun."""

import os
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.launch import Meeting
from gpuyard.measure.measurement import RunPlace
from gpuyard.measure.places.place import Cores, torchrun_environment

_PORTS = (20_000, 30_000)
_SLURM_SECONDS = 20


@dataclass(frozen=True)
class SlurmAllocation:
    """A step of one task for each rank; `--overlap`, because the batch script holds the cores too."""

    names: tuple[str, ...]
    port: int = field(default_factory=lambda: random.randrange(*_PORTS))
    dilation: float = 1.0

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:  # noqa: ARG002
        if most_workers > len(self.names):
            raise UserMistake(
                f"{most_workers} workers need {most_workers} nodes, the allocation has "
                f"{len(self.names)}"
            )
        return ((),) * most_workers

    def identity(self) -> Mapping[str, Any]:
        return {"kind": "slurm", "hosts": list(self.names)}

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:  # noqa: ARG002
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={self.names[rank]}", "--overlap"]
        return ["srun", *one, "--unbuffered", "--kill-on-bad-exit=0", *argv]

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:
        return torchrun_environment(rank, processes, self.meeting())

    def meeting(self) -> Meeting:
        return Meeting(self.names[0], self.port)

    def record(self, workers: int) -> RunPlace:
        return RunPlace(kind="slurm", nodes=self.names[:workers])


def allocation() -> SlurmAllocation:
    """The allocation of this shell; raises where there is none."""
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if nodes is None or shutil.which("scontrol") is None:
        raise UserMistake(
            "this is not inside a Slurm allocation; start one with: salloc --nodes=2, or name --hosts"
        )
    try:
        listed = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],  # noqa: S607  found above
            capture_output=True,
            text=True,
            check=True,
            timeout=_SLURM_SECONDS,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise GpuyardError(f"scontrol could not list the allocation's nodes: {error}") from error
    return SlurmAllocation(tuple(listed.stdout.split()))
