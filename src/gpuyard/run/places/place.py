"""What every way of launching has in common: cores, a command for each rank, its environment, a record."""

import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.run.launch import Meeting
from gpuyard.run.protocol import MEETING_POINT

Cores = tuple[tuple[int, ...], ...]


class RunPlace(BaseModel):
    """Where the workers ran, and the links between them where gpuyard made these."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys

    kind: Literal["here", "lab", "hosts", "slurm"] = "here"
    nodes: Annotated[tuple[str, ...], Field(description="one for each worker")] = ()
    link_bytes_per_second: Annotated[
        float | None,
        Field(description="of the slowest node's link, each direction; None: not known"),
    ] = None
    dilation: Annotated[
        float,
        Field(description="how many times slower it really ran; all times here are undilated"),
    ] = 1.0


class Place(Protocol):
    """One seat for each worker. No process is started before a run begins."""

    @property
    def dilation(self) -> float:
        """How many times slower everything runs than it is meant to."""
        ...

    @property
    def stop_signal(self) -> signal.Signals:
        """What a rank's command is sent so that it ends at once, and the rank with it."""
        ...

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:
        """The cores to pin each worker to; none where the host decides. Raises where seats are missing.

        Workers that don't compute, because their GPU is synthetic, may share cores.
        """
        ...

    def identity(self) -> Mapping[str, Any] | None:
        """What makes a measurement here another one than on this machine alone; None: nothing."""
        ...

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:
        """The arguments that start this rank where it belongs."""
        ...

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:
        """What the started process gets beside this process's own environment."""
        ...

    def meeting(self) -> Meeting | None:
        """Where ranks on several hosts meet; None: all are on this one."""
        ...

    def record(self, workers: int) -> RunPlace:
        """What is kept of it with the measurement."""
        ...


def torchrun_environment(rank: int, processes: int, meeting: Meeting) -> dict[str, str]:
    """What torchrun sets for one process a node, so that a user's code finds it without torchrun, too."""
    return {
        MEETING_POINT: "env://",
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "GROUP_RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
