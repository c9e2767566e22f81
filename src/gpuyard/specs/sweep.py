"""The spec of a sweep: all combinations of workers, batch, strategy, link, and remedy, with repeats."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from gpuyard.specs.base import (
    MAX_LISTED,
    BytesPerSecond,
    Counts,
    GpuName,
    Name,
    Seconds,
    Spec,
    WorkloadReference,
)
from gpuyard.specs.cluster import get_reference_tag
from gpuyard.specs.exchange import DEFAULT_EXCHANGE, ExchangeOptions
from gpuyard.specs.study import MeasuredStrategy


class SweepLink(Spec):
    """The links of a lab that gpuyard creates for the sweep."""

    rate: Annotated[
        BytesPerSecond, Field(description="rate of each node's link, in each direction")
    ]
    dilation: Annotated[
        float,
        Field(
            ge=1,
            le=10_000,
            description="slowdown factor of everything in the lab; results are scaled back",
        ),
    ] = 1.0


class SweepWorkload(Spec):
    """A workload, and its batch sizes if they differ from the sweep's."""

    workload: Annotated[
        WorkloadReference, Field(description="workload file next to the sweep, or a catalog model")
    ]
    batch: Annotated[
        Counts | None,
        Field(description="batch sizes for this workload; default: those of the sweep"),
    ] = None


class SweepFile(Spec):
    """The combinations to measure, and the number of repeats."""

    name: Annotated[Name, Field(description="name of the sweep")]
    workloads: Annotated[
        tuple[
            Annotated[
                Annotated[SweepWorkload, Tag("described")]
                | Annotated[WorkloadReference, Tag("named")],
                Discriminator(get_reference_tag),
            ],
            ...,
        ],
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="list of workloads: files next to the sweep, catalog models, or the next two keys",
        ),
    ]
    nodes: Annotated[Counts, Field(description="numbers of workers; in a lab, one per node")] = (
        1,
        2,
    )
    batch: Annotated[
        Counts | None, Field(description="batch sizes per worker; default: the workload's")
    ] = None
    strategy: Annotated[
        tuple[MeasuredStrategy, ...],
        Field(min_length=1, max_length=MAX_LISTED, description="list of strategies"),
    ] = ("ddp",)
    link: Annotated[
        tuple[
            Annotated[
                Annotated[SweepLink, Tag("described")] | Annotated[BytesPerSecond, Tag("named")],
                Discriminator(get_reference_tag),
            ],
            ...,
        ],
        Field(
            max_length=MAX_LISTED,
            description="list of link rates, or of the next two keys; each gets its own lab; default: no lab: "
            "this machine",
        ),
    ] = ()
    remedy: Annotated[
        tuple[ExchangeOptions, ...],
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="list of the next keys; `{}` is plain DDP; default: `[{}]`",
        ),
    ] = (DEFAULT_EXCHANGE,)
    gpu: Annotated[
        GpuName | None,
        Field(
            description="catalog GPU whose compute time each step sleeps instead of computing; default: none: "
            "steps are computed"
        ),
    ] = None
    repeats: Annotated[
        int, Field(ge=1, le=100, description="number of measurements per combination")
    ] = 1
    time_per_point: Annotated[
        Seconds,
        Field(gt=0, description="measuring time of each combination, after warm-up"),
    ] = 3.0
    attempts: Annotated[
        int,
        Field(ge=1, le=20, description="number of attempts at a point whose runs are not valid"),
    ] = 2

    def links(self) -> tuple[SweepLink | None, ...]:
        """Return the links of the labs, or None for this machine without a lab."""
        if not self.link:
            return (None,)
        return tuple(
            link if isinstance(link, SweepLink) else SweepLink(rate=f"{8 * link} bit/s")
            for link in self.link
        )
