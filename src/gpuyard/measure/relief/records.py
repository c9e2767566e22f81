"""The record of a remedy benchmark, and the messages to and from its ranks."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader
from gpuyard.measure.record import BenchRecord, RecordPart
from gpuyard.measure.training.records import TrainingJob
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Precision


class ReliefJob(TrainingJob):
    """The instructions to train the same samples with each remedy, each time from the same weights."""

    remedies: tuple[ExchangeOptions, ...]
    steps: int


class ReliefProgress(RecordPart):
    """The completed fraction of one remedy's training."""

    event: Literal["progress"] = "progress"
    number: int
    fraction: float


class RemedyRun(RecordPart):
    """The speed of one remedy, and the loss after the same number of samples."""

    event: Literal["relieved"] = "relieved"
    remedy: ExchangeOptions
    samples: int
    seconds: Annotated[float, Field(description="for the timed samples, without time dilation")]
    samples_per_second: float
    loss_first: Annotated[float | None, Field(description="of the untrained model")] = None
    loss: Annotated[float | None, Field(description="after all samples; None if not finite")]
    ranks_equal: bool


read_event: EventReader[ReliefProgress | RemedyRun] = EventReader(ReliefProgress | RemedyRun)


class ReliefResult(BenchRecord):
    """The runs of a remedy benchmark: plain DDP first, then the remedies."""

    kind: Literal["relief"] = "relief"
    workload: str
    workers: int
    batch_per_worker: int
    place: RunPlace
    tolerance: float
    precision: Annotated[
        Precision | None, Field(description="of the training; None: not recorded")
    ] = None
    runs: tuple[RemedyRun, ...]
    predicted_gains: Annotated[
        tuple[float | None, ...],
        Field(description="predicted speed-up of each run; None: not predicted"),
    ] = ()

    @property
    def plain(self) -> RemedyRun:
        return next(run for run in self.runs if run.remedy.is_default)

    def speed_up(self, run: RemedyRun) -> float:
        return run.samples_per_second / self.plain.samples_per_second

    def equal_loss(self, run: RemedyRun) -> bool:
        """Return whether the loss exceeds that of plain DDP by at most the tolerance."""
        if run.loss is None or self.plain.loss is None:
            return False
        return run.loss <= self.plain.loss * (1 + self.tolerance)

    def learned_share(self, run: RemedyRun) -> float | None:
        """Return how far the loss fell relative to plain DDP, or None if plain DDP learned nothing."""
        first, plain = self.plain.loss_first, self.plain.loss
        if first is None or plain is None or run.loss is None or first <= plain:
            return None
        return (first - run.loss) / (first - plain)

    @property
    def predicted_speed_ups(self) -> tuple[float | None, ...]:
        """The predicted speed-up of every run, None if there is none."""
        return self.predicted_gains or (None,) * len(self.runs)

    @property
    def best(self) -> RemedyRun:
        """The fastest run at equal loss; plain DDP if none is faster."""
        return max(
            (run for run in self.runs if run.remedy.is_default or self.equal_loss(run)),
            key=lambda run: run.samples_per_second,
        )

    def as_json(self) -> dict[str, Any]:
        document = super().as_json()
        for run_document, run, predicted in zip(
            document["runs"], self.runs, self.predicted_speed_ups, strict=True
        ):
            run_document |= {
                "label": run.remedy.label,
                "predicted_speed_up": predicted,
                "speed_up": self.speed_up(run),
                "equal_loss": self.equal_loss(run),
                "learned_share": self.learned_share(run),
            }
        return {
            **document,
            "best": self.best.remedy.label,
            "best_speed_up": self.speed_up(self.best),
        }
