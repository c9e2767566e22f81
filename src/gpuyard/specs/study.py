"""A study: workloads, what to measure here, the clusters to predict for, and the prices."""

import datetime
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from gpuyard.specs.base import (
    MOST_LISTED,
    ClusterReference,
    Count,
    Country,
    Counts,
    Line,
    Name,
    Seconds,
    Share,
    Spec,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    Watts,
    WorkloadReference,
    Years,
)
from gpuyard.specs.cluster import Cluster, named_or_described
from gpuyard.specs.exchange import DEFAULT_EXCHANGE, ExchangeOptions, StrategyName

MeasuredStrategy = Literal["ddp", "dataparallel", "horovod"]
"""A parameter server is predicted, not measured."""


class MeasureHere(Spec):
    """The sweep to run on this machine."""

    workers: Counts = (1, 2)
    batch: Counts = (10, 50, 200)
    strategy: MeasuredStrategy = "ddp"
    time_per_point: Annotated[
        Seconds, Field(gt=0, description="how long each combination is timed, after warm-up")
    ] = 3.0


class StudyWorkload(Spec):
    """One workload of the study, and its own batch sizes where they differ from the study's."""

    workload: Annotated[
        WorkloadReference,
        Field(description="a workload file next to the study, or a catalog model"),
    ]
    batch: Counts | None = None


class StudyCluster(Spec):
    """A cluster that you don't own (yet), and how many of its GPUs to try."""

    cluster: Annotated[
        Annotated[Cluster, Tag("described")] | Annotated[ClusterReference, Tag("named")],
        Discriminator(named_or_described),
        Field(
            description="a cluster file next to the study, a catalog machine, or the cluster itself"
        ),
    ]
    gpus: Annotated[
        Counts | None,
        Field(description="how many to try; by default twice as many each time, up to all of them"),
    ] = None
    batch: Annotated[
        Count | None, Field(description="batch size per GPU there; the workload's own by default")
    ] = None
    strategy: StrategyName = "ddp"
    exchange: ExchangeOptions = DEFAULT_EXCHANGE


class RentOrBuy(Spec):
    """The prices of the same capacity, rented and bought."""

    rent: UsdPerHour
    buy: Usd
    speed_lead: Annotated[
        Share, Field(description="how much faster the bought machine is than the rented one")
    ] = 0.0
    hours_per_year: Annotated[float, Field(gt=0, le=8784)] = 2000.0
    horizon: Annotated[Years, Field(description="planning horizon")] = 3 * 365.25 * 86400
    power: Annotated[Watts, Field(description="of the bought machine under load")] = 0.0
    electricity: UsdPerKwh = 0.0
    country: Annotated[
        Country | None, Field(description="whose electricity price counts; two letters, like DE")
    ] = None
    pue: Annotated[float, Field(ge=1, le=5)] = 1.0
    colocation_per_year: Usd = 0.0
    value_kept_per_year: Annotated[Share, Field(description="share of the resale value")] = 0.0
    discount_rate: Annotated[Share, Field(description="per year, for today's money")] = 0.0
    date: Annotated[datetime.date | None, Field(description="of the prices")] = None


class Study(Spec):
    """The whole row: describe, measure, predict, decide."""

    name: Name
    workloads: Annotated[
        tuple[
            Annotated[
                Annotated[StudyWorkload, Tag("described")]
                | Annotated[WorkloadReference, Tag("named")],
                Discriminator(named_or_described),
            ],
            ...,
        ],
        Field(min_length=1, max_length=MOST_LISTED),
    ]
    measure: MeasureHere | None = MeasureHere()
    clusters: Annotated[tuple[StudyCluster, ...], Field(max_length=MOST_LISTED)] = ()
    epoch_batches: Annotated[
        Counts, Field(description="batch sizes of the chart of time per epoch")
    ] = (10, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600)
    cost: RentOrBuy | None = None
    plan: Annotated[Line | None, Field(description="a plan file next to the study")] = None
