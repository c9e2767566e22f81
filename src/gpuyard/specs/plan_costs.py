"""The keys of a plan about costs: the room, owning, renting, interruptions, and your own prices."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import (
    MAX_LISTED,
    Bytes,
    Country,
    GpuName,
    MachineName,
    Region,
    Seconds,
    Share,
    Spec,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerKwMonth,
    Watts,
)


class PlanSite(Spec):
    """The site of bought machines, and its costs."""

    power: Annotated[
        Watts | None,
        Field(gt=0, description="power that the room has, including cooling; default: no limit"),
    ] = None
    country: Annotated[
        Country | None,
        Field(
            description="two-letter country code for the electricity price, like `DE`; default: `US`, and the "
            "answer states it"
        ),
    ] = None
    region: Annotated[
        Region | None,
        Field(
            description="region with its own electricity price, like `US-IL`, as named by `gpuyard catalog "
            "electricity`"
        ),
    ] = None
    electricity: Annotated[
        UsdPerKwh | None,
        Field(description="electricity price, like `$0.12/kWh`; default: the country's"),
    ] = None
    pue: Annotated[
        float, Field(ge=1, le=3, description="power of the room divided by that of its machines")
    ] = 1.58
    colocation: Annotated[
        UsdPerKwMonth,
        Field(
            description="colocation price per kW under load, without electricity, like `$184/kW/month`"
        ),
    ] = 184.06
    colocation_pue: Annotated[
        float,
        Field(ge=1, le=3, description="PUE of the colocation"),
    ] = 1.3


class Owning(Spec):
    """The costs of bought machines other than power and space; costs that are left out are zero."""

    busy_at_most: Annotated[
        Share,
        Field(
            gt=0,
            description="highest utilization of the machines, as a share of all hours",
        ),
    ] = 0.8
    spares: Annotated[
        Share, Field(description="spare parts bought with the hardware, as a share of its price")
    ] = 0.0
    support_per_year: Annotated[
        Share, Field(description="support contract, as a share of the hardware's price")
    ] = 0.0
    value_kept_per_year: Annotated[
        Share,
        Field(description="share of the resale value that remains after a year; 0: no resale"),
    ] = 0.0
    staff_hours_per_month: Annotated[
        float, Field(ge=0, le=1e6, description="staff hours per machine and month")
    ] = 2.0
    staff: Annotated[UsdPerHour, Field(description="price of a staff hour")] = 75.0
    idle_power: Annotated[
        Share, Field(description="power of an idle machine, as a share of its power under load")
    ] = 0.0
    failure: Annotated[
        Usd,
        Field(ge=0, description="cost per failure; there is one in about 50,700 GPU-hours"),
    ] = 0.0


class Renting(Spec):
    """The costs of rented runs other than their steps: startup time, and data in the cloud."""

    start: Annotated[
        Seconds,
        Field(description="billed time from requesting machines to the first step"),
    ] = 300.0
    data: Annotated[
        Bytes | None,
        Field(
            description="data stored in the cloud over the horizon; default: the workload's dataset: samples × "
            "bytes per sample"
        ),
    ] = None
    results: Annotated[
        Bytes | None,
        Field(
            description="data downloaded after each run; default: a checkpoint, 12 bytes per parameter"
        ),
    ] = None
    storage: Annotated[
        Usd | None,
        Field(
            ge=0,
            description="storage price per GB and month, like `$0.023`; default: the cloud's, from `gpuyard "
            "catalog cloud-data`",
        ),
    ] = None
    egress: Annotated[
        Usd | None,
        Field(
            ge=0,
            description="egress price per GB, like `$0.09`; with your own price, nothing is free; default: the "
            "cloud's, from `gpuyard catalog cloud-data`",
        ),
    ] = None


class SpotInterruptions(Spec):
    """The interruption rate of spot instances, and the time that an interruption costs a run."""

    interruptions_per_hour: Annotated[
        float | None,
        Field(
            ge=0,
            le=60,
            description="interruptions of one instance per hour; default: from the share that its cloud publishes, "
            "otherwise 0.05 (assumed)",
        ),
    ] = None
    checkpoint: Annotated[Seconds, Field(description="time to write a checkpoint")] = 60.0
    restart: Annotated[Seconds, Field(description="time until the run continues")] = 600.0


class GpuPrice(Spec):
    """Your price for one GPU."""

    gpu: Annotated[GpuName, Field(description="catalog GPU")]
    price: Annotated[Usd, Field(description="price of one GPU")]


class ServerPrice(Spec):
    """A quote for a whole server."""

    machine: Annotated[MachineName, Field(description="catalog machine")]
    price: Annotated[Usd, Field(description="price of one machine")]


class OwnPrices(Spec):
    """Your own quotes and term discounts, which replace catalog prices."""

    gpus: Annotated[
        tuple[GpuPrice, ...],
        Field(max_length=MAX_LISTED, description="list of GPU prices; default: the catalog's"),
    ] = ()
    servers: Annotated[
        tuple[ServerPrice, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of quotes for catalog machines; default: list prices",
        ),
    ] = ()
    reserved_1_year: Annotated[
        Share | None,
        Field(
            description="discount on the on-demand price for a one-year term; default: 35%, large clouds only"
        ),
    ] = None
    reserved_3_years: Annotated[
        Share | None,
        Field(
            description="discount on the on-demand price for a three-year term; default: 55%, large clouds only"
        ),
    ] = None
