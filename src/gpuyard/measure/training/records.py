"""The record of a timed training run, complete enough to verify or repeat it, and the messages between a sweep and
its ranks, one JSON object per line."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.choices import Launcher
from gpuyard.measure.ranks import EventReader, WorkloadJob
from gpuyard.measure.record import Record, RecordPart, StoredProfile, Testbed
from gpuyard.run.places.place import RunPlace
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions
from gpuyard.specs.exchange import RecordedStrategy
from gpuyard.units import format_bit_rate


class MeasuredStep(RecordPart):
    """The time of one synchronized step and its parts, which add up to it."""

    step_seconds: float
    compute_seconds: float
    exposed_communication_seconds: Annotated[
        float,
        Field(
            description="step time minus that of a step without gradient exchange; 0 if noise makes it negative"
        ),
    ]
    input_seconds: float


class Window(RecordPart):
    """Consecutive steps, with the time of the slowest rank."""

    steps: int
    seconds: float
    input_seconds: float


class SyntheticGpu(RecordPart):
    """A catalog GPU whose compute time was emulated by sleeping; the exchange of gradients is real."""

    gpu: str
    fixed_seconds: float
    seconds_per_sample: float
    basis: str
    source: str

    def step_seconds(self, batch: int) -> float:
        """Return the compute time of one step."""
        return self.fixed_seconds + batch * self.seconds_per_sample


class TrainingJob(WorkloadJob):
    """The instructions for one rank; ranks differ only in rank number and cores."""

    strategy: RecordedStrategy
    workers: int
    batches: tuple[int, ...]
    seconds_per_point: float
    seed: int
    remedy: ExchangeOptions = ExchangeOptions()
    optimizer: Literal["sgd", "adam"] = "sgd"
    synthetic: SyntheticGpu | None = None
    dilation: float = 1.0


class PointProgress(RecordPart):
    """The completed fraction of the current point."""

    event: Literal["progress"] = "progress"
    batch_per_worker: int
    fraction: float


class PointResult(RecordPart):
    """A finished point as rank 0 measured it."""

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
    profile: StoredProfile = None


read_event: EventReader[PointProgress | PointResult] = EventReader(PointProgress | PointResult)


class Provenance(Testbed):
    """The testbed of a training run, how its ranks ran there, and the source of its data."""

    backend: str
    threads_per_worker: int
    cores_by_worker: tuple[tuple[int, ...], ...]
    data_source: str
    seed: int
    launcher: Annotated[Launcher, Field(description="how the ranks were started")] = "direct"


def describe_place(place: RunPlace) -> str:
    """Describe where a run took place: this machine, or the nodes and their links."""
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
    """The training speed of one workload at one worker count and batch size."""

    kind: Literal["train"] = "train"
    workload: str
    spec: Annotated[dict[str, Any], Field(description="the whole workload spec")]
    workers: int
    batch_per_worker: int
    strategy: RecordedStrategy
    device: RankDevice
    samples_per_second: Annotated[float, Field(description="of all workers together")]
    low: Annotated[float, Field(description="95% confidence interval of the mean over windows")]
    high: float
    step: MeasuredStep
    all_reduce_bytes: Annotated[
        int | None, Field(description="all gradients; None with one worker")
    ]
    all_reduce_seconds: Annotated[
        float | None, Field(description="median of an all-reduce of as many bytes without training")
    ]
    windows: Annotated[tuple[Window, ...], Field(description="of synchronized steps")]
    local_windows: Annotated[
        tuple[Window, ...],
        Field(description="of steps without gradient exchange, between the others"),
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
    host_busy_share: Annotated[
        float | None,
        Field(
            description="share of the used cores of this machine that was busy; None: they were elsewhere"
        ),
    ] = None
    profile: StoredProfile = None
    provenance: Provenance


class Rejection(Record):
    """A run that is not valid, stored with the reason and never used as a measurement."""

    kind: Literal["rejected"] = "rejected"
    reason: str
    measurement: Measurement

    @classmethod
    def from_measurement(cls, measurement: Measurement, reason: str) -> "Rejection":
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
