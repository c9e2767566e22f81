"""What a bench of collectives gives, and what its ranks say on the way."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.ranks import EventReader
from gpuyard.measure.record import BenchRecord, Cause, RecordPart
from gpuyard.run.places.place import RunPlace
from gpuyard.run.protocol import RankDevice, RankJob

Operation = Literal["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"]
Backend = Literal["gloo", "nccl", "mpi"]
CollectiveVerdict = Literal["normal", "below", "wrong"]


class CollectivesJob(RankJob):
    """What one rank is told."""

    backend: Backend
    operations: tuple[Operation, ...]
    sizes: tuple[int, ...]
    repeats: int
    seconds_per_size: float


class RingPair(RecordPart):
    """One rank sends to the next, and nobody else does."""

    source: int
    target: int
    bytes_per_second: float


class Probe(RecordPart):
    """The links by themselves, before any collective: every rank sends to the next, all at once."""

    event: Literal["probe"] = "probe"
    latency_seconds: Annotated[float, Field(description="of one step of a ring with 4 bytes")]
    ring_bytes_per_second: Annotated[float, Field(description="that each rank sends and receives")]
    pairs: tuple[RingPair, ...] = ()


class TimedCollective(RecordPart):
    """One operation at one size; the time is that of the slowest rank."""

    event: Literal["timed"] = "timed"
    operation: Operation
    bytes: Annotated[int, Field(description="as nccl-tests counts: of all ranks' parts together")]
    seconds: Annotated[tuple[float, ...], Field(description="of one operation, each repeat")]
    correct: bool


class Started(RecordPart):
    """For progress only."""

    event: Literal["started"] = "started"
    operation: Operation | None
    bytes: int


RankEvent = Probe | TimedCollective | Started
read_event: EventReader[RankEvent] = EventReader(RankEvent)


class CollectiveResult(RecordPart):
    """One operation at one size beside the model; times and rates are undilated."""

    operation: Operation
    algorithm: Annotated[
        str, Field(description="that the backend uses, and the model reckons with")
    ]
    bytes: int
    seconds: Annotated[float, Field(description="median of the repeats")]
    repeats: tuple[float, ...]
    spread: Annotated[float, Field(description="slowest minus fastest repeat, over the median")]
    algorithm_bytes_per_second: Annotated[float, Field(description="nccl-tests' algbw")]
    bus_bytes_per_second: Annotated[float, Field(description="nccl-tests' busbw")]
    expected_seconds: float
    ratio: Annotated[float, Field(description="expected over measured time; 1: as the model says")]
    latency_bound: Annotated[bool, Field(description="hops are most of the expected time")]
    correct: bool
    verdict: CollectiveVerdict


class SlowCollective(RecordPart):
    """An operation below what this link should give; the likeliest cause comes first."""

    operation: Operation
    smallest_bytes: int
    largest_bytes: int
    worst_ratio: float
    causes: tuple[Cause, ...]


class CoreLoad(RecordPart):
    """How busy the cores were, of all that this machine has."""

    before: float
    during: float
    ranks_per_core: float


class CollectivesBench(BenchRecord):
    """All operations and sizes of one bench."""

    kind: Literal["collectives"] = "collectives"
    backend: Backend
    device: RankDevice
    ranks: int
    place: RunPlace
    link_bytes_per_second: Annotated[
        float | None, Field(description="of the slowest link, as it is sold; None: not known")
    ]
    reckoned_bytes_per_second: Annotated[
        float,
        Field(description="what the model takes a link to carry: payload, or the probe's rate"),
    ]
    probe: Probe
    load: CoreLoad
    results: tuple[CollectiveResult, ...]
    findings: tuple[SlowCollective, ...]
    notes: tuple[str, ...] = ()
