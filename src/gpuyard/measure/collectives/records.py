"""The record of a collectives bench, and the jobs and events of its ranks."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.choices import Backend, Collective
from gpuyard.measure.ranks import EventReader
from gpuyard.measure.record import BenchRecord, Cause, RecordPart
from gpuyard.run.places.place import RunPlace
from gpuyard.run.protocol import RankDevice, RankJob

CollectiveVerdict = Literal["normal", "below", "wrong"]


class CollectivesJob(RankJob):
    """The job of one rank."""

    backend: Backend
    operations: tuple[Collective, ...]
    sizes: tuple[int, ...]
    repeats: int
    seconds_per_size: float


class RingPair(RecordPart):
    """The rate from one rank to the next while no other rank sends."""

    source: int
    target: int
    bytes_per_second: float


class Probe(RecordPart):
    """The rate of the links before any collective: every rank sends to the next, all at once."""

    event: Literal["probe"] = "probe"
    latency_seconds: Annotated[float, Field(description="duration of a ring step of 4 bytes")]
    ring_bytes_per_second: Annotated[
        float, Field(description="rate at which each rank sends and receives")
    ]
    pairs: tuple[RingPair, ...] = ()


class TimedCollective(RecordPart):
    """The times of one operation at one size, each that of the slowest rank."""

    event: Literal["timed"] = "timed"
    operation: Collective
    bytes: Annotated[
        int, Field(description="size of all ranks' parts together, as nccl-tests counts it")
    ]
    seconds: Annotated[tuple[float, ...], Field(description="time per operation in each repeat")]
    correct: bool


class Started(RecordPart):
    """The start of an operation, for the progress bar."""

    event: Literal["started"] = "started"
    operation: Collective | None
    bytes: int


RankEvent = Probe | TimedCollective | Started
read_event: EventReader[RankEvent] = EventReader(RankEvent)


class CollectiveResult(RecordPart):
    """The measured and expected time of one operation at one size, without dilation."""

    operation: Collective
    algorithm: Annotated[str, Field(description="algorithm of the backend, used by the model")]
    bytes: int
    seconds: Annotated[float, Field(description="median of the repeats")]
    repeats: tuple[float, ...]
    spread: Annotated[float, Field(description="slowest minus fastest repeat, over the median")]
    algorithm_bytes_per_second: Annotated[float, Field(description="nccl-tests' algbw")]
    bus_bytes_per_second: Annotated[float, Field(description="nccl-tests' busbw")]
    expected_seconds: float
    ratio: Annotated[float, Field(description="expected over measured time")]
    latency_bound: Annotated[bool, Field(description="latency is most of the expected time")]
    correct: bool
    verdict: CollectiveVerdict


class SlowCollective(RecordPart):
    """An operation slower than expected; the likeliest cause comes first."""

    operation: Collective
    smallest_bytes: int
    largest_bytes: int
    worst_ratio: float
    causes: tuple[Cause, ...]


class CoreLoad(RecordPart):
    """The busy share of all cores of this machine before and during the bench."""

    before: float
    during: float
    ranks_per_core: float


class CollectivesBench(BenchRecord):
    """The record of a collectives bench."""

    kind: Literal["collectives"] = "collectives"
    backend: Backend
    device: RankDevice
    ranks: int
    place: RunPlace
    link_bytes_per_second: Annotated[
        float | None, Field(description="nominal rate of the slowest link; None: unknown")
    ]
    modeled_bytes_per_second: Annotated[
        float,
        Field(description="link rate in the model: the nominal payload rate, or the probe's rate"),
    ]
    probe: Probe
    load: CoreLoad
    results: tuple[CollectiveResult, ...]
    findings: tuple[SlowCollective, ...]
    notes: tuple[str, ...] = ()
