"""The record of a link bench: measured and expected rates, and the causes of slow links."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.record import BenchRecord, Cause, RecordPart

PlannedLinkKind = Literal["host-gpu", "gpu-gpu", "memory", "loopback"]
Direction = Literal["one-way", "both-ways"]
LinkVerdict = Literal["as expected", "slow", "no model"]
IommuMode = Literal["off", "passthrough", "translating"]


def _format_label(source: str, target: str, direction: Direction, peer: bool | None) -> str:
    arrow = "→" if direction == "one-way" else "⇄"
    return f"{source} {arrow} {target}{', staged' if peer is False else ''}"


class PlannedLink(RecordPart):
    """A link to time. GPUs are named as in the machine graph; host memory is `host`."""

    kind: PlannedLinkKind
    source: str
    target: str
    direction: Direction
    peer: Annotated[
        bool | None,
        Field(description="False: staged through host memory; None: not between two GPUs"),
    ] = None
    cores: Annotated[
        int | None, Field(description="number of cores that copy at once; memory only")
    ] = None

    @property
    def label(self) -> str:
        if self.cores is not None:
            return f"memory, {self.cores} core{'s' if self.cores > 1 else ''}"
        if self.kind == "loopback":
            return f"loopback, {self.direction.replace('-', ' ')}"
        return _format_label(self.source, self.target, self.direction, self.peer)


class LinkMeasurement(PlannedLink):
    """The repeated timing of one link."""

    bytes: Annotated[
        int,
        Field(description="bytes per repeat: the sum of both directions, or of reads and writes"),
    ]
    seconds: Annotated[tuple[float, ...], Field(description="duration of each repeat")]
    bytes_per_second: Annotated[float, Field(description="rate of the median repeat")]
    spread: Annotated[float, Field(description="slowest minus fastest repeat, over the median")]

    @classmethod
    def from_seconds(
        cls, link: PlannedLink, moved_bytes: int, seconds: Sequence[float]
    ) -> "LinkMeasurement":
        median_seconds = median(seconds)
        return cls(
            **link.model_dump(),
            bytes=moved_bytes,
            seconds=tuple(seconds),
            bytes_per_second=moved_bytes / median_seconds,
            spread=(max(seconds) - min(seconds)) / median_seconds,
        )


class ComparedLink(RecordPart):
    """A measurement and its expected rate; without a model there is no ratio."""

    measured: LinkMeasurement
    expected_bytes_per_second: float | None
    ratio: float | None
    verdict: LinkVerdict


class SlowLink(RecordPart):
    """A link below its expected rate; the likeliest cause comes first."""

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
        return _format_label(self.source, self.target, self.direction, self.peer)


class GpuSlot(RecordPart):
    """The PCIe link of one GPU as the kernel reports it; the GPU is plugged into the port."""

    gpu: str
    address: str
    width: int | None
    max_width: Annotated[int | None, Field(description="maximum width of the GPU itself")]
    speed: Annotated[float | None, Field(description="current GT/s per lane")]
    max_speed: Annotated[float | None, Field(description="maximum GT/s per lane of the GPU")]
    port_max_width: int | None
    port_max_speed: float | None


class HostFacts(RecordPart):
    """The properties of this host that may slow a link down. None: it could not be read."""

    virtual_machine: Annotated[str | None, Field(description="hypervisor; None: bare metal")]
    iommu: IommuMode | None
    acs_bridges: Annotated[
        tuple[str, ...] | None,
        Field(description="PCIe bridges above GPUs that send peer traffic up to the CPU"),
    ]
    slots: tuple[GpuSlot, ...] = ()
    last_level_cache_bytes: int | None = None
    busy_share: Annotated[
        float | None, Field(description="share of all cores that was busy before the bench")
    ] = None


class LinkBench(BenchRecord):
    """The record of a link bench on one machine."""

    kind: Literal["links"] = "links"
    size_bytes: Annotated[int, Field(description="size of one copy in one direction")]
    repeats: int
    facts: HostFacts
    model: Annotated[str | None, Field(description="machine graph that the rates come from")]
    links: tuple[ComparedLink, ...]
    findings: tuple[SlowLink, ...]
    notes: tuple[str, ...] = ()
