"""What who starts ranks and the ranks themselves have agreed on, whatever the ranks are there for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RankDevice = Literal["cpu", "cuda"]
SILENCE_SECONDS = 600.0
"""After which ranks that say nothing are stopped."""
LOST_PEER_STATUS = 75  # EX_TEMPFAIL: this rank is fine, another one went away
JOBS_DIRECTORY = "GPUYARD_JOBS"
"""Where the ranks of one agent find their jobs, which it has read for them, by their rank."""

RANK_PREFIX = "[rank{}]:"
"""Before each line that a rank of an agent writes on stderr."""


STRANGER = "gpuyard-stranger: "
"""Before the address of somebody who knocked where the ranks meet, on a line of stderr."""
TORCHRUN_BACKEND = "gpuyard"
"""How the agents of torchrun meet: through the run's own store."""


class Rendezvous(BaseModel):
    """Where the ranks of several nodes meet, and what each has to know to be let in.

    It is told on stdin, with the rest of the job: a command line or an environment can be seen by others.
    """

    model_config = ConfigDict(frozen=True)

    address: str
    port: int
    others: tuple[str, ...] = Field(description="nodes that have to reach it")
    secret: str = Field(repr=False)
    keeps: bool = Field(default=False, description="this process keeps the store for all")


class RankJob(BaseModel):
    """What every rank is told, whatever it is there for: which it is, what it computes on, and where it meets
    the others."""

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
    """A sentence for the user instead of a result."""

    event: Literal["refusal"] = "refusal"
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"]
    sentence: str


class Done(_Message):
    """The last word of a rank that has done its work: one that ends without it was ended."""

    event: Literal["done"] = "done"
    rank: int


class Failed(_Message):
    """An agent says which of its ranks has failed first, and how; then it ends as that one did."""

    event: Literal["failed"] = "failed"
    rank: int
    status: int
