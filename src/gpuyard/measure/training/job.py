"""What the sweep says to a rank process, and what it hears back: one JSON object a line."""

from typing import Literal

from gpuyard.measure.ranks import EventReader, WorkloadJob
from gpuyard.measure.record import OwnProfile, RecordPart
from gpuyard.measure.training.measurement import MeasuredStep, SyntheticGpu, Window
from gpuyard.specs import ExchangeOptions, StrategyName


class TrainingJob(WorkloadJob):
    """Everything that one rank needs to know; the same for all but its rank and cores."""

    strategy: StrategyName
    workers: int
    batches: tuple[int, ...]
    seconds_per_point: float
    seed: int
    remedy: ExchangeOptions = ExchangeOptions()
    optimizer: Literal["sgd", "adam"] = "sgd"
    synthetic: SyntheticGpu | None = None
    dilation: float = 1.0


class PointProgress(RecordPart):
    """How much of the current point is done."""

    event: Literal["progress"] = "progress"
    batch_per_worker: int
    fraction: float


class PointResult(RecordPart):
    """One finished point, as rank 0 sees it."""

    event: Literal["point"] = "point"
    batch_per_worker: int
    samples_per_second: float
    low: float
    high: float
    step: MeasuredStep
    all_reduce_bytes: int | None
    all_reduce_seconds: float | None
    windows: tuple[Window, ...]
    local_windows: tuple[Window, ...]
    loss_first: float | None
    loss_last: float | None
    parameter_checksums: tuple[str, ...]
    backend: str
    data_source: str
    profile: OwnProfile = None


read_event: EventReader[PointProgress | PointResult] = EventReader(PointProgress | PointResult)
