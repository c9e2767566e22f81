"""What a bench of the links gives: rates with their repeats, what they should be, and why they are not."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.record import BenchRecord, Cause, RecordPart

PlannedLinkKind = Literal["host-gpu", "gpu-gpu", "memory", "loopback"]
Direction = Literal["one-way", "both-ways"]
LinkVerdict = Literal["as expected", "slow", "no model"]
IommuMode = Literal["off", "passthrough", "translating"]


def _label(source: str, target: str, direction: Direction, peer: bool | None) -> str:
    arrow = "→" if direction == "one-way" else "⇄"
    return f"{source} {arrow} {target}{', staged' if peer is False else ''}"


class PlannedLink(RecordPart):
    """One thing to time. GPUs are named as in the machine graph, host memory is `host`."""

    kind: PlannedLinkKind
    source: str
    target: str
    direction: Direction
    peer: Annotated[
        bool | None,
        Field(description="False: staged through host memory; None: not between two GPUs"),
    ] = None
    cores: Annotated[int | None, Field(description="that copy at once; memory only")] = None

    @property
    def label(self) -> str:
        if self.cores is not None:
            return f"memory, {self.cores} core{'s' if self.cores > 1 else ''}"
        if self.kind == "loopback":
            return f"loopback, {self.direction.replace('-', ' ')}"
        return _label(self.source, self.target, self.direction, self.peer)


class LinkMeasurement(PlannedLink):
    """One link, timed some times."""

    bytes: Annotated[
        int,
        Field(description="moved in one repeat: both directions, or read and written, together"),
    ]
    seconds: Annotated[tuple[float, ...], Field(description="of each repeat")]
    bytes_per_second: Annotated[float, Field(description="by the median of the repeats")]
    spread: Annotated[float, Field(description="slowest minus fastest repeat, over the median")]

    @classmethod
    def of(cls, link: PlannedLink, moved_bytes: int, seconds: Sequence[float]) -> "LinkMeasurement":
        middle = median(seconds)
        return cls(
            **link.model_dump(),
            bytes=moved_bytes,
            seconds=tuple(seconds),
            bytes_per_second=moved_bytes / middle,
            spread=(max(seconds) - min(seconds)) / middle,
        )


class ComparedLink(RecordPart):
    """A measurement beside what the machine graph says; without a model there is no ratio."""

    measured: LinkMeasurement
    expected_bytes_per_second: float | None
    ratio: float | None
    verdict: LinkVerdict


class SlowLink(RecordPart):
    """A link below what it should be; the likeliest cause comes first."""

    source: str
    target: str
    direction: Direction
    peer: bool | None
    measured_bytes_per_second: float
    expected_bytes_per_second: float
    ratio: float
    causes: tuple[Cause, ...]

    @property
    def label(self) -> str:
        return _label(self.source, self.target, self.direction, self.peer)


class GpuSlot(RecordPart):
    """The PCIe link of one GPU as the kernel sees it; the port is what the GPU is plugged into."""

    gpu: str
    address: str
    width: int | None
    most_width: Annotated[int | None, Field(description="of the GPU itself")]
    speed: Annotated[float | None, Field(description="GT/s of a lane, now")]
    most_speed: Annotated[float | None, Field(description="GT/s of a lane that the GPU can do")]
    port_most_width: int | None
    port_most_speed: float | None


class HostFacts(RecordPart):
    """What about this host may slow a link down. None: it could not be read."""

    virtual_machine: Annotated[str | None, Field(description="what it runs on; None: bare metal")]
    iommu: IommuMode | None
    acs_bridges: Annotated[
        tuple[str, ...] | None,
        Field(description="PCIe bridges above GPUs that send peer traffic up to the CPU"),
    ]
    slots: tuple[GpuSlot, ...] = ()
    last_level_cache_bytes: int | None = None
    busy_share: Annotated[
        float | None, Field(description="of all cores, by others, before anything was measured")
    ] = None


class LinkBench(BenchRecord):
    """All links of one machine, measured one after the other."""

    kind: Literal["links"] = "links"
    size_bytes: Annotated[int, Field(description="of one copy in one direction")]
    repeats: int
    facts: HostFacts
    model: Annotated[str | None, Field(description="the machine graph compared with")]
    links: tuple[ComparedLink, ...]
    findings: tuple[SlowLink, ...]
    notes: tuple[str, ...] = ()
