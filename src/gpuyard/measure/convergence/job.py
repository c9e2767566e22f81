"""What a rank that trains to an accuracy is told, and what it says."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpuyard.run.protocol import Device, Refusal
from gpuyard.specs import Workload


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class FitJob(_Message):
    """The same for all ranks but `rank` and `cores`."""

    workload: Workload
    device: Device
    rank: int
    processes: int
    directory: str
    cores: tuple[int, ...]
    silence_seconds: float
    seed: int
    batch_per_worker: int
    epochs: int
    target_accuracy: float
    checkpoint: str
    identity: str


class FitProgress(_Message):
    """How much of an epoch is done."""

    event: Literal["progress"] = "progress"
    epoch: int
    fraction: float


class EpochDone(_Message):
    """What the model knows after an epoch, the first of which is 1; its checkpoint is written."""

    event: Literal["epoch"] = "epoch"
    epoch: int
    seconds: float
    loss: Annotated[float, Field(description="mean over the training data, after the epoch")]
    training_accuracy: float
    held_out_accuracy: float
    parameter_checksum: str
    restored: Annotated[bool, Field(description="read from the checkpoint, not trained now")] = (
        False
    )


FitEvent = Annotated[FitProgress | EpochDone | Refusal, Field(discriminator="event")]
_EVENT: TypeAdapter[FitProgress | EpochDone | Refusal] = TypeAdapter(FitEvent)


def read_event(line: bytes) -> FitProgress | EpochDone | Refusal:
    """One line of a rank's stdout."""
    return _EVENT.validate_json(line)
