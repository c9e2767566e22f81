"""What who starts ranks and the ranks themselves have agreed on, whatever the ranks are there for."""

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

Device = Literal["cpu", "cuda"]
LOST_PEER_STATUS = 75  # EX_TEMPFAIL: this rank is fine, another one went away
# its own name: a stray MASTER_ADDR in a user's shell must not move a run of this machine
MEETING_POINT = "GPUYARD_MEETING_POINT"
JOBS_DIRECTORY = "GPUYARD_JOBS"
"""Where the ranks of one agent find their jobs, which it has read for them, by their rank."""

RANK_PREFIX = "[rank{}]:"
"""Before each line that a rank of an agent writes on stderr."""


class Job(Protocol):
    """What every rank is told, whatever it is there for: which it is, and where it meets the others."""

    @property
    def rank(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def cores(self) -> tuple[int, ...]: ...
    @property
    def silence_seconds(self) -> float: ...
    def model_dump_json(self) -> str: ...


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Refusal(_Message):
    """A sentence for the user instead of a result."""

    event: Literal["refusal"] = "refusal"
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"]
    sentence: str


class Failed(_Message):
    """An agent says which of its ranks has failed first, and how; then it ends as that one did."""

    event: Literal["failed"] = "failed"
    rank: int
    status: int
