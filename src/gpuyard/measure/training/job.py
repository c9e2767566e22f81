"""What the sweep says to a rank process, and what it hears back: one JSON object a line."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpuyard.measure.training.measurement import StepParts, SyntheticGpu, Window
from gpuyard.run.protocol import Device, Refusal
from gpuyard.specs import ExchangeOptions, StrategyName, Workload


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class RankJob(_Message):
    """Everything that one rank needs to know; the same for all but `rank` and `cores`."""

    workload: Workload
    strategy: StrategyName
    device: Device
    rank: int
    processes: int
    workers: int
    directory: str
    batches: tuple[int, ...]
    seconds_per_point: float
    cores: tuple[int, ...]
    seed: int
    silence_seconds: float
    remedy: ExchangeOptions = ExchangeOptions()
    optimizer: Literal["sgd", "adam"] = "sgd"
    synthetic: SyntheticGpu | None = None
    dilation: float = 1.0


class Progress(_Message):
    """How much of the current point is done."""

    event: Literal["progress"] = "progress"
    batch_per_worker: int
    fraction: float


class PointResult(_Message):
    """One finished point, as rank 0 sees it."""

    event: Literal["point"] = "point"
    batch_per_worker: int
    samples_per_second: float
    low: float
    high: float
    step: StepParts
    all_reduce_bytes: int | None
    all_reduce_seconds: float | None
    windows: tuple[Window, ...]
    local_windows: tuple[Window, ...]
    loss_first: float | None
    loss_last: float | None
    parameter_checksums: tuple[str, ...]
    backend: str
    data_source: str


RankEvent = Annotated[Progress | PointResult | Refusal, Field(discriminator="event")]
RANK_EVENT: TypeAdapter[Progress | PointResult | Refusal] = TypeAdapter(RankEvent)


def read_event(line: bytes) -> Progress | PointResult | Refusal:
    """One line of a rank's stdout."""
    return RANK_EVENT.validate_json(line)
