"""What the ranks of a relief are told and say, and what comes out of it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader
from gpuyard.measure.record import BenchRecord, RecordPart
from gpuyard.measure.training.records import TrainingJob
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Precision


class ReliefJob(TrainingJob):
    """Train the same samples with each of the remedies, every time from the same weights."""

    remedies: tuple[ExchangeOptions, ...]
    steps: int


class ReliefProgress(RecordPart):
    """How much of which remedy's training is done."""

    event: Literal["progress"] = "progress"
    number: int
    fraction: float


class Relieved(RecordPart):
    """One remedy: how fast it went, and what was learnt from as many samples."""

    event: Literal["relieved"] = "relieved"
    remedy: ExchangeOptions
    samples: int
    seconds: Annotated[float, Field(description="of the timed samples, undilated")]
    samples_per_second: float
    loss_first: Annotated[float | None, Field(description="of the untrained model")] = None
    loss: Annotated[float | None, Field(description="after all samples; None if not finite")]
    ranks_equal: bool


read_event: EventReader[ReliefProgress | Relieved] = EventReader(ReliefProgress | Relieved)


class ReliefResult(BenchRecord):
    """Plain DDP first, then the remedies."""

    kind: Literal["relief"] = "relief"
    workload: str
    workers: int
    batch_per_worker: int
    place: RunPlace
    tolerance: float
    precision: Annotated[
        Precision | None, Field(description="what was trained in; None: an older gpuyard kept none")
    ] = None
    runs: tuple[Relieved, ...]
    foreseen: Annotated[
        tuple[float | None, ...],
        Field(description="the speed-up that the predictor gave each run; None: it gave none"),
    ] = ()

    @property
    def plain(self) -> Relieved:
        return next(run for run in self.runs if run.remedy.plain)

    def speed_up(self, run: Relieved) -> float:
        return run.samples_per_second / self.plain.samples_per_second

    def equal_loss(self, run: Relieved) -> bool:
        """Not above plain DDP's by more than the tolerance."""
        if run.loss is None or self.plain.loss is None:
            return False
        return run.loss <= self.plain.loss * (1 + self.tolerance)

    def learnt(self, run: Relieved) -> float | None:
        """How far the loss fell, over how far it fell with plain DDP; None where that learnt nothing."""
        first, plain = self.plain.loss_first, self.plain.loss
        if first is None or plain is None or run.loss is None or first <= plain:
            return None
        return (first - run.loss) / (first - plain)

    @property
    def foreseen_of_each(self) -> tuple[float | None, ...]:
        """For every run, None where nothing was foreseen."""
        return self.foreseen or (None,) * len(self.runs)

    @property
    def best(self) -> Relieved:
        """The fastest of those that learn as much; plain DDP itself where none is faster."""
        return max(
            (run for run in self.runs if run.remedy.plain or self.equal_loss(run)),
            key=lambda run: run.samples_per_second,
        )

    def as_json(self) -> dict[str, Any]:
        said = super().as_json()
        for shown, run, foreseen in zip(
            said["runs"], self.runs, self.foreseen_of_each, strict=True
        ):
            shown |= {
                "label": run.remedy.label,
                "foreseen_speed_up": foreseen,
                "speed_up": self.speed_up(run),
                "equal_loss": self.equal_loss(run),
                "learnt": self.learnt(run),
            }
        return {
            **said,
            "best": self.best.remedy.label,
            "best_speed_up": self.speed_up(self.best),
        }
