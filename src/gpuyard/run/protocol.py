"""The messages between the process that starts the ranks and the ranks themselves."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RankDevice = Literal["cpu", "cuda"]
SILENCE_SECONDS = 600.0
"""Ranks that send no event for this long are stopped."""
LOST_PEER_STATUS = 75  # EX_TEMPFAIL: this rank is fine, but it lost another one.
JOBS_DIRECTORY = "GPUYARD_JOBS"
"""Variable with the directory in which an agent puts the jobs of its ranks."""
RANK_PREFIX = "[rank{}]:"
"""Prefix of each line that a rank of an agent writes to stderr."""
REJECTED_PEER = "gpuyard-rejected-peer: "
"""Prefix of a line on stderr with the address of a rejected connection to the rendezvous."""
TORCHRUN_BACKEND = "gpuyard"
"""torchrun's rendezvous backend: the run's own store."""


class Rendezvous(BaseModel):
    """The address of the run's store for ranks on several nodes, and the secret that it requires.

    It is passed on stdin with the rest of the job: other users can see a command line or an environment.
    """

    model_config = ConfigDict(frozen=True)

    address: str
    port: int
    others: tuple[str, ...] = Field(description="nodes that must be able to reach it")
    secret: str = Field(repr=False)
    serves: bool = Field(default=False, description="whether this process serves the store for all")


class RankJob(BaseModel):
    """The part of a job that all kinds of ranks share: the rank, its device, and its rendezvous."""

    model_config = ConfigDict(frozen=True)

    rank: int
    processes: int
    directory: str
    cores: tuple[int, ...]
    device: RankDevice
    silence_seconds: float = SILENCE_SECONDS
    rendezvous: Rendezvous | None = None


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class RankRefusal(_Message):
    """An error message for the user instead of a result."""

    event: Literal["refusal"] = "refusal"
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"]
    message: str


class Done(_Message):
    """The last event of a rank that has finished its work; a rank that exits without it was stopped."""

    event: Literal["done"] = "done"
    rank: int


class Failed(_Message):
    """An agent's report of its first failed rank; the agent then exits with the same status."""

    event: Literal["failed"] = "failed"
    rank: int
    status: int
