"""What who starts ranks and the ranks themselves have agreed on, whatever the ranks are there for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Device = Literal["cpu", "cuda"]
LOST_PEER_STATUS = 75  # EX_TEMPFAIL: this rank is fine, another one went away
# its own name: a stray MASTER_ADDR in a user's shell must not move a run of this machine
MEETING_POINT = "GPUYARD_MEETING_POINT"


class Refusal(BaseModel):
    """A sentence for the user instead of a result."""

    model_config = ConfigDict(frozen=True)

    event: Literal["refusal"] = "refusal"
    kind: Literal["GpuyardError", "MissingRequirement", "UserMistake"]
    sentence: str
