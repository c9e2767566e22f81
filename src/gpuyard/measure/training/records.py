"""One timed run with everything needed to believe it, or to do it again; and what a sweep says to its ranks and hears
back: one JSON object a line."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader, WorkloadJob
from gpuyard.measure.record import OwnProfile, Record, RecordPart, Testbed
from gpuyard.run.launch import Launcher
from gpuyard.run.places.place import RunPlace
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, StrategyName
from gpuyard.units import format_bit_rate


class MeasuredStep(RecordPart):
    """Where the time of one synchronised step goes; the parts add up to it."""

    step_seconds: float
    compute_seconds: float
    exposed_communication_seconds: Annotated[
        float,
        Field(
            description="step minus a step without exchange of gradients; noise below 0 is set to 0"
        ),
    ]
    input_seconds: float


class Window(RecordPart):
    """Some steps in a row; the time is that of the slowest rank."""

    steps: int
    seconds: float
    input_seconds: float


class SyntheticGpu(RecordPart):
    """A catalog GPU whose compute was slept, not done; everything that was exchanged is real."""

    gpu: str
    fixed_seconds: float
    seconds_per_sample: float
    basis: str
    source: str

    def step_seconds(self, batch: int) -> float:
        """What it computes for one step."""
        return self.fixed_seconds + batch * self.seconds_per_sample


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


class Provenance(Testbed):
    """The testbed of a training run, how its ranks ran there, and from what data."""

    backend: str
    threads_per_worker: int
    cores_by_worker: tuple[tuple[int, ...], ...]
    data_source: str
    seed: int
    launcher: Annotated[Launcher, Field(description="who started the ranks")] = "direct"


def place_words(place: RunPlace) -> str:
    """This machine, or the nodes and their links."""
    if place.kind == "here":
        return "this machine"
    text = f"{place.kind}: {', '.join(place.nodes)}"
    if place.ranks_per_node is not None and place.ranks_per_node > 1:
        text += f", {place.ranks_per_node} workers per node"
    if place.link_bytes_per_second is not None:
        text += f" at {format_bit_rate(place.link_bytes_per_second)}"
    if place.dilation != 1:
        text += f", time dilated × {place.dilation:g}"
    return text


class Measurement(Record):
    """How fast one workload trains with so many workers, each on a batch of this size."""

    kind: Literal["train"] = "train"
    workload: str
    spec: Annotated[dict[str, Any], Field(description="the whole workload spec")]
    workers: int
    batch_per_worker: int
    strategy: StrategyName
    device: RankDevice
    samples_per_second: Annotated[float, Field(description="of all workers together")]
    low: Annotated[float, Field(description="95 % confidence interval of the mean over windows")]
    high: float
    step: MeasuredStep
    all_reduce_bytes: Annotated[
        int | None, Field(description="all gradients; None with one worker")
    ]
    all_reduce_seconds: Annotated[
        float | None, Field(description="median of a bare all-reduce of as many bytes")
    ]
    windows: Annotated[tuple[Window, ...], Field(description="of synchronised steps")]
    local_windows: Annotated[
        tuple[Window, ...], Field(description="of steps without exchange, between the others")
    ] = ()
    loss_first: Annotated[
        float | None, Field(description="of the first step, mean over ranks; None if not finite")
    ]
    loss_last: float | None
    parameter_checksums: Annotated[
        tuple[str, ...], Field(description="of each rank after the run; DDP keeps them equal")
    ] = ()
    remedy: ExchangeOptions = ExchangeOptions()
    synthetic: Annotated[
        SyntheticGpu | None, Field(description="None: the device really computed")
    ] = None
    place: RunPlace = RunPlace()
    profile: OwnProfile = None
    provenance: Provenance


class Rejection(Record):
    """A run that is not credible: kept with the reason, never taken for a measurement."""

    kind: Literal["rejected"] = "rejected"
    reason: str
    measurement: Measurement

    @classmethod
    def of(cls, measurement: Measurement, reason: str) -> "Rejection":
        return cls(
            id=measurement.id,
            key=measurement.key,
            created_at=measurement.created_at,
            reason=reason,
            measurement=measurement,
        )

    @property
    def workload_name(self) -> str:
        return self.measurement.workload
