"""What a rank that trains to an accuracy is told and says, and what comes out of it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader, WorkloadJob
from gpuyard.measure.record import BenchRecord, RecordPart
from gpuyard.specs import Precision


class ConvergenceJob(WorkloadJob):
    """What one rank is told."""

    seed: int
    batch_per_worker: int
    epochs: int
    target_accuracy: float
    checkpoint: str
    identity: str


class EpochProgress(RecordPart):
    """How much of an epoch is done."""

    event: Literal["progress"] = "progress"
    epoch: int
    fraction: float


class EpochDone(RecordPart):
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

    @property
    def words(self) -> str:
        again = " (from the checkpoint)" if self.restored else ""
        return (
            f"epoch {self.epoch}: loss {self.loss:.4f}, training data "
            f"{100 * self.training_accuracy:.2f} %, held out "
            f"{100 * self.held_out_accuracy:.2f} %{again}"
        )


read_event: EventReader[EpochProgress | EpochDone] = EventReader(EpochProgress | EpochDone)


class ConvergenceRun(BenchRecord):
    """All epochs, those before a kill too."""

    kind: Literal["convergence"] = "convergence"
    workload: str
    workers: int
    batch_per_worker: int
    target_accuracy: float
    precision: Annotated[
        Precision | None, Field(description="what was trained in; None: as PyTorch does there")
    ] = None
    reached: bool
    checkpoint: str
    epochs: tuple[EpochDone, ...]

    @property
    def last(self) -> EpochDone:
        return self.epochs[-1]

    @property
    def is_new(self) -> bool:
        """Something was trained; a run that was finished before is only read from its checkpoint."""
        return not all(epoch.restored for epoch in self.epochs)

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "last": self.last.model_dump(exclude={"event", "restored"})}
