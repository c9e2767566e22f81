"""The spec of a study: workloads, measurements on this machine, clusters to predict, and prices."""

import datetime
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from gpuyard.specs.base import (
    MAX_LISTED,
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
from gpuyard.specs.cluster import Cluster, get_reference_tag
from gpuyard.specs.exchange import DEFAULT_EXCHANGE, ExchangeOptions, StrategyName

MeasuredStrategy = Literal["ddp", "dataparallel", "horovod"]
"""The strategies that gpuyard can measure; a parameter server is only predicted."""


class MeasureHere(Spec):
    """The sweep to run on this machine."""

    workers: Annotated[Counts, Field(description="numbers of workers")] = (1, 2)
    batch: Annotated[Counts, Field(description="batch sizes per worker")] = (10, 50, 200)
    strategy: Annotated[
        MeasuredStrategy,
        Field(
            description="strategy that exchanges gradients; `parameter-server` cannot be measured"
        ),
    ] = "ddp"
    time_per_point: Annotated[
        Seconds,
        Field(gt=0, description="measuring time of each combination, after warm-up"),
    ] = 3.0


class StudyWorkload(Spec):
    """A workload of the study, and its batch sizes if they differ from the study's."""

    workload: Annotated[
        WorkloadReference,
        Field(description="workload file next to the study, or a catalog model"),
    ]
    batch: Annotated[
        Counts | None,
        Field(description="batch sizes to measure for this workload; default: those of `measure`"),
    ] = None


class StudyCluster(Spec):
    """A cluster to predict, and the numbers of GPUs to compare."""

    cluster: Annotated[
        Annotated[Cluster, Tag("described")] | Annotated[ClusterReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="cluster file next to the study, a catalog machine, a short form, or the cluster itself"
        ),
    ]
    gpus: Annotated[
        Counts | None,
        Field(description="numbers of GPUs; default: doubling, up to all of them"),
    ] = None
    batch: Annotated[
        Count | None,
        Field(description="batch size per GPU; default: the workload's `batch_per_gpu`"),
    ] = None
    strategy: Annotated[StrategyName, Field(description="strategy that exchanges gradients")] = (
        "ddp"
    )
    exchange: Annotated[
        ExchangeOptions, Field(description="options of the exchange in the training script")
    ] = DEFAULT_EXCHANGE


class RentOrBuy(Spec):
    """The prices of the same capacity, rented and bought."""

    rent: Annotated[UsdPerHour, Field(description="rental price per hour")]
    buy: Annotated[Usd, Field(description="purchase price")]
    speed_lead: Annotated[
        Share, Field(description="speed advantage of the bought machine over the rented one")
    ] = 0.0
    hours_per_year: Annotated[float, Field(gt=0, le=8784, description="hours of use per year")] = (
        2000.0
    )
    horizon: Annotated[
        Years,
        Field(description="planning horizon, for payments by month and the tornado chart"),
    ] = 3 * 365.25 * 86400
    power: Annotated[Watts, Field(description="power of the bought machine under load")] = 0.0
    electricity: Annotated[
        UsdPerKwh,
        Field(
            description="electricity price, like `$0.12/kWh`; default: the price of `cost.country`; without "
            "both, electricity is not counted, and the report states it"
        ),
    ] = 0.0
    country: Annotated[
        Country | None,
        Field(description="two-letter country code for the electricity price, like `DE`"),
    ] = None
    pue: Annotated[
        float,
        Field(
            ge=1,
            le=5,
            description="power usage effectiveness: building power per watt of the machine",
        ),
    ] = 1.0
    colocation_per_year: Annotated[Usd, Field(description="colocation price per year")] = 0.0
    value_kept_per_year: Annotated[
        Share, Field(description="share of the resale value that remains after a year")
    ] = 0.0
    discount_rate: Annotated[
        Share, Field(description="discount rate per year, for the present value")
    ] = 0.0
    date: Annotated[
        datetime.date | None, Field(description="date of the prices; default: the study's")
    ] = None


class Study(Spec):
    """A study from description and measurement to prediction and decision."""

    name: Annotated[Name, Field(description="title of the report")]
    workloads: Annotated[
        tuple[
            Annotated[
                Annotated[StudyWorkload, Tag("described")]
                | Annotated[WorkloadReference, Tag("named")],
                Discriminator(get_reference_tag),
            ],
            ...,
        ],
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="list of workloads: files next to the study, catalog models, or the next two keys",
        ),
    ]
    measure: Annotated[
        MeasureHere | None, Field(description="runs to measure here; `null`: none")
    ] = MeasureHere()
    clusters: Annotated[
        tuple[StudyCluster, ...],
        Field(max_length=MAX_LISTED, description="list of clusters to predict for"),
    ] = ()
    epoch_batches: Annotated[
        Counts, Field(description="batch sizes in the chart of time per epoch; default: 10 to 600")
    ] = (10, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600)
    cost: Annotated[RentOrBuy | None, Field(description="comparison of renting and buying")] = None
    plan: Annotated[
        Line | None,
        Field(description="plan file next to the study; its answer and chart go into the report"),
    ] = None
