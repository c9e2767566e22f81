"""The record of a training run to a target accuracy, and the messages to and from its ranks."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader, WorkloadJob
from gpuyard.measure.record import BenchRecord, RecordPart
from gpuyard.specs import Precision


class ConvergenceJob(WorkloadJob):
    """The instructions for one rank."""

    seed: int
    batch_per_worker: int
    epochs: int
    target_accuracy: float
    checkpoint: str
    identity: str


class EpochProgress(RecordPart):
    """The completed fraction of an epoch."""

    event: Literal["progress"] = "progress"
    epoch: int
    fraction: float


class EpochResult(RecordPart):
    """The loss and accuracy after an epoch, counted from 1, whose checkpoint is written."""

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

    @property
    def summary(self) -> str:
        source = " (from the checkpoint)" if self.restored else ""
        return (
            f"epoch {self.epoch}: loss {self.loss:.4f}, training data "
            f"{100 * self.training_accuracy:.2f}%, held out "
            f"{100 * self.held_out_accuracy:.2f}%{source}"
        )


read_event: EventReader[EpochProgress | EpochResult] = EventReader(EpochProgress | EpochResult)


class ConvergenceRun(BenchRecord):
    """A training run with all its epochs, including those restored from a checkpoint."""

    kind: Literal["convergence"] = "convergence"
    workload: str
    workers: int
    batch_per_worker: int
    target_accuracy: float
    precision: Annotated[
        Precision | None, Field(description="of the training; None: PyTorch's default")
    ] = None
    reached: bool
    checkpoint: str
    epochs: tuple[EpochResult, ...]

    @property
    def last(self) -> EpochResult:
        return self.epochs[-1]

    @property
    def is_new(self) -> bool:
        """True if any epoch was trained now, false if all were read from the checkpoint."""
        return not all(epoch.restored for epoch in self.epochs)

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "last": self.last.model_dump(exclude={"event", "restored"})}
