"""A sweep: every combination of workers, batch, strategy, link and remedy, some times over."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from gpuyard.specs.base import (
    MOST_LISTED,
    BytesPerSecond,
    Counts,
    GpuName,
    Name,
    Seconds,
    Spec,
    WorkloadReference,
)
from gpuyard.specs.cluster import named_or_described
from gpuyard.specs.exchange import DEFAULT_EXCHANGE, ExchangeOptions
from gpuyard.specs.study import MeasuredStrategy


class SweepLink(Spec):
    """The links of a lab that is made for the sweep."""

    rate: Annotated[BytesPerSecond, Field(description="of each node's link, each direction")]
    dilation: Annotated[
        float,
        Field(
            ge=1,
            le=10_000,
            description="everything runs this many times slower; results are scaled back",
        ),
    ] = 1.0


class SweepWorkload(Spec):
    """One workload, and its own batch sizes where they differ from the sweep's."""

    workload: Annotated[
        WorkloadReference, Field(description="a workload file beside the sweep, or a catalog model")
    ]
    batch: Counts | None = None


class SweepFile(Spec):
    """What to measure, and how often."""

    name: Name
    workloads: Annotated[
        tuple[
            Annotated[
                Annotated[SweepWorkload, Tag("described")]
                | Annotated[WorkloadReference, Tag("named")],
                Discriminator(named_or_described),
            ],
            ...,
        ],
        Field(min_length=1, max_length=MOST_LISTED),
    ]
    nodes: Annotated[Counts, Field(description="worker counts; in a lab one a node")] = (1, 2)
    batch: Annotated[Counts | None, Field(description="of one worker")] = None
    strategy: Annotated[
        tuple[MeasuredStrategy, ...], Field(min_length=1, max_length=MOST_LISTED)
    ] = ("ddp",)
    link: Annotated[
        tuple[
            Annotated[
                Annotated[SweepLink, Tag("described")] | Annotated[BytesPerSecond, Tag("named")],
                Discriminator(named_or_described),
            ],
            ...,
        ],
        Field(max_length=MOST_LISTED, description="a lab for each; none: this machine as it is"),
    ] = ()
    remedy: Annotated[tuple[ExchangeOptions, ...], Field(min_length=1, max_length=MOST_LISTED)] = (
        DEFAULT_EXCHANGE,
    )
    gpu: Annotated[
        GpuName | None, Field(description="a catalog GPU whose time is slept instead of computing")
    ] = None
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    time_per_point: Annotated[Seconds, Field(gt=0)] = 3.0
    attempts: Annotated[
        int, Field(ge=1, le=20, description="tries of a point whose runs are not credible")
    ] = 2

    def links(self) -> tuple[SweepLink | None, ...]:
        """Each as a link; none is this machine."""
        if not self.link:
            return (None,)
        return tuple(
            link if isinstance(link, SweepLink) else SweepLink(rate=f"{8 * link} bit/s")
            for link in self.link
        )
