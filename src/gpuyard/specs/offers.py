"""The spec of offers: ways to get the same work done (on demand, reserved, spot, owned) and their prices."""

import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from gpuyard.choices import Increment, Load
from gpuyard.specs.base import (
    MAX_LISTED,
    Bytes,
    Country,
    InstanceName,
    Name,
    PricedMachineName,
    Seconds,
    Share,
    Spec,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerKwMonth,
    Watts,
)


class KeptData(Spec):
    """Data that is stored in the cloud."""

    size: Annotated[Bytes, Field(description="size of the stored data")]
    price_per_gb_month: Annotated[Usd, Field(description="storage price per GB and month")]


class MovedData(Spec):
    """Data that is downloaded from the cloud."""

    size_per_month: Annotated[Bytes, Field(description="size of the downloaded data per month")]
    price_per_gb: Annotated[Usd, Field(description="egress price per GB")]
    free_per_month: Annotated[Bytes, Field(description="free egress per month")] = 0.0


class OfferSpec(Spec):
    """The keys that all offers have."""

    name: Annotated[Name, Field(description="name of the offer")]
    speed: Annotated[
        float, Field(gt=0, le=1e6, description="work per hour, relative to `hours_per_year`")
    ] = 1.0
    date: Annotated[
        datetime.date | None,
        Field(description="date of the price; a catalog instance has its own"),
    ] = None


class _RentedOffer(OfferSpec):
    count: Annotated[int, Field(gt=0, le=1_000_000, description="instances rented together")] = 1
    instance: Annotated[
        InstanceName | None, Field(description="row of `gpuyard catalog prices`, for its price")
    ] = None
    storage: Annotated[KeptData | None, Field(description="data stored there")] = None
    egress: Annotated[MovedData | None, Field(description="data downloaded from there")] = None

    price_key: ClassVar[str] = "price"

    @model_validator(mode="after")
    def _check_price(self) -> "_RentedOffer":
        if (getattr(self, self.price_key) is None) == (self.instance is None):
            raise ValueError(f"this offer needs either {self.price_key!r} or 'instance'")
        return self


class OnDemandOffer(_RentedOffer):
    """An offer by the hour, paid while it is used."""

    kind: Literal["on-demand"]
    price: Annotated[UsdPerHour | None, Field(description="price of one instance")] = None
    increment: Annotated[
        Increment, Field(description="billing increment; each run is rounded up to it")
    ] = "second"
    minimum: Annotated[Seconds, Field(description="shortest time billed for each run")] = 0.0
    discount: Annotated[
        Share, Field(description="discount on all hours, or on the committed hours only")
    ] = 0.0
    committed_hours_per_year: Annotated[
        float | None,
        Field(ge=0, le=8784, description="hours paid at the discounted price, even when idle"),
    ] = None


class ReservedOffer(_RentedOffer):
    """An offer by the year, paid even when idle."""

    price_key = "price_per_year"
    kind: Literal["reserved"]
    price_per_year: Annotated[Usd | None, Field(description="price of one instance")] = None
    discount: Annotated[
        Share,
        Field(description="discount on the on-demand price of `instance`, for all hours of a year"),
    ] = 0.0
    term: Annotated[Seconds, Field(gt=0, description="length of the contract")] = 365.25 * 86400
    upfront: Annotated[Share, Field(description="share of a term that is paid at its start")] = 0.0
    rest: Annotated[
        Literal["pay", "resell"] | None,
        Field(
            description="treatment of a term that continues past the horizon; required in that case"
        ),
    ] = None
    resale: Annotated[
        Share, Field(description="resale value of the unused part, as a share of its price")
    ] = 0.0


class SpotOffer(_RentedOffer):
    """An offer by the hour that can be interrupted."""

    kind: Literal["spot"]
    price: Annotated[UsdPerHour | None, Field(description="price of one instance")] = None
    interruptions_per_hour: Annotated[
        float, Field(ge=0, le=60, description="interruptions of one instance per hour")
    ]
    checkpoint: Annotated[Seconds, Field(description="time to write a checkpoint")] = 60.0
    restart: Annotated[Seconds, Field(description="time until the work continues")] = 600.0
    checkpoint_every: Annotated[
        Seconds | None, Field(gt=0, description="checkpoint interval; default: Daly's optimum")
    ] = None


class OwnedOffer(OfferSpec):
    """Bought hardware, on premises or in a colocation. Costs that are left out are zero."""

    kind: Literal["own"]
    hardware: Annotated[
        Usd | None, Field(description="price of the hardware; or name the `machine`")
    ] = None
    hardware_range: Annotated[
        tuple[Usd, Usd] | None, Field(description="lowest and highest expected price")
    ] = None
    machine: Annotated[
        PricedMachineName | None,
        Field(description="catalog machine or one built from parts, for its price and range"),
    ] = None
    spares: Annotated[
        Share, Field(description="spare parts bought with it, as a share of the hardware's price")
    ] = 0.0
    installation: Annotated[Usd, Field(description="one-time price of the installation")] = 0.0
    network: Annotated[Usd, Field(description="one-time price of switches and cables")] = 0.0
    power: Annotated[Watts, Field(description="power under load")] = 0.0
    idle_power: Annotated[Watts, Field(description="power when idle")] = 0.0
    pue: Annotated[
        float,
        Field(
            ge=1, le=5, description="power usage effectiveness, building power per watt of IT load"
        ),
    ] = 1.0
    electricity: Annotated[
        UsdPerKwh,
        Field(
            description="electricity price, like `$0.12/kWh`; default: the price of `offers[].country`; without"
            " both, electricity is not counted, and the answer states it"
        ),
    ] = 0.0
    country: Annotated[
        Country | None, Field(description="country for the electricity price, like DE")
    ] = None
    colocation_per_year: Annotated[Usd, Field(description="colocation price by rack")] = 0.0
    colocation: Annotated[
        UsdPerKwMonth, Field(description="colocation price by kW, without electricity")
    ] = 0.0
    uplink_per_month: Annotated[
        Usd, Field(description="price of the internet uplink per month")
    ] = 0.0
    support_per_year: Annotated[
        Share, Field(description="support contract, as a share of the hardware's price")
    ] = 0.0
    staff_hours_per_month: Annotated[
        float, Field(ge=0, le=1e6, description="staff hours per month")
    ] = 0.0
    staff: Annotated[UsdPerHour, Field(description="price of a staff hour")] = 0.0
    gpus: Annotated[int, Field(ge=0, le=1_000_000, description="GPUs that can fail")] = 0
    gpu_hours_per_failure: Annotated[
        float,
        Field(gt=0, le=1e12, description="GPU-hours per failure; default: 50,677, as in Llama 3"),
    ] = 54 * 24 * 16_384 / 419
    price_per_failure: Annotated[Usd, Field(description="cost per failure")] = 0.0
    financed: Annotated[
        Share, Field(description="share of the one-time payments that a loan covers")
    ] = 0.0
    interest: Annotated[Share, Field(description="interest per year")] = 0.0
    loan: Annotated[Seconds, Field(gt=0, description="term of the loan")] = 3 * 365.25 * 86400
    value_kept_per_year: Annotated[
        Share, Field(description="share of the resale value that remains after a year")
    ] = 0.0
    depreciation: Annotated[
        Seconds,
        Field(description="alternative: time in which the value falls evenly to zero"),
    ] = 0.0

    @model_validator(mode="after")
    def _check_price(self) -> "OwnedOffer":
        if (self.hardware is None) == (self.machine is None):
            raise ValueError("give either 'hardware' or 'machine'")
        if self.hardware_range is not None:
            low, high = self.hardware_range
            if self.hardware is None or not low <= self.hardware <= high:
                raise ValueError("'hardware_range' must contain 'hardware'")
        return self


class Offers(Spec):
    """The amount of work, the time it is needed for, and the offers to compare."""

    name: Annotated[Name, Field(description="title")]
    hours_per_year: Annotated[
        float, Field(gt=0, le=8766, description="hours of work per year, at speed 1")
    ] = 2000.0
    load: Annotated[
        Load,
        Field(
            description="shape of the load, as in `gpuyard cost hybrid`; owned and reserved capacity is sized "
            "for the busiest hour"
        ),
    ] = "steady"
    horizon: Annotated[Seconds, Field(description="time for which the capacity is needed")] = (
        3 * 365.25 * 86400
    )
    run: Annotated[
        Seconds | None,
        Field(gt=0, description="duration of one training run at speed 1, for the price per run"),
    ] = None
    discount_rate: Annotated[
        Share, Field(description="discount rate per year, for the present value")
    ] = 0.0
    offers: Annotated[
        tuple[
            Annotated[
                OnDemandOffer | ReservedOffer | SpotOffer | OwnedOffer,
                Field(discriminator="kind"),
            ],
            ...,
        ],
        Field(min_length=1, max_length=MAX_LISTED, description="list of offers"),
    ]

    @model_validator(mode="after")
    def _check_names(self) -> "Offers":
        names = [offer.name for offer in self.offers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two offers are called {name!r}")
        return self
