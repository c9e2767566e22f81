"""Offers: how to get the same work done (by the hour, by the year, on spot, owned) and the prices."""

import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from gpuyard.specs.base import (
    MOST_LISTED,
    Bytes,
    Country,
    InstanceName,
    Name,
    Seconds,
    Share,
    Spec,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerKwMonth,
    Watts,
)

Increment = Literal["hour", "minute", "second", "1/100 h"]
Load = Literal["steady", "working-hours", "spiky"]


class KeptData(Spec):
    """Data that lies in the cloud."""

    size: Bytes
    price_per_gb_month: Usd


class MovedData(Spec):
    """Data that is taken out of the cloud."""

    size_per_month: Bytes
    price_per_gb: Usd
    free_per_month: Bytes = 0.0


class OfferSpec(Spec):
    """What all offers have."""

    name: Name
    speed: Annotated[
        float, Field(gt=0, le=1e6, description="work per hour, relative to the hours of the file")
    ] = 1.0
    date: Annotated[
        datetime.date | None, Field(description="of the price; a catalog instance brings its own")
    ] = None


class _Rented(OfferSpec):
    count: Annotated[int, Field(gt=0, le=1_000_000, description="instances rented together")] = 1
    instance: Annotated[
        InstanceName | None, Field(description="a row of `gpuyard catalog prices`, for its price")
    ] = None
    storage: KeptData | None = None
    egress: MovedData | None = None

    price_key: ClassVar[str] = "price"

    @model_validator(mode="after")
    def _has_a_price(self) -> "_Rented":
        if (getattr(self, self.price_key) is None) == (self.instance is None):
            raise ValueError(f"this offer has either {self.price_key!r} or 'instance'")
        return self


class OnDemandOffer(_Rented):
    """By the hour, when it is used."""

    kind: Literal["on-demand"]
    price: Annotated[UsdPerHour | None, Field(description="of one instance")] = None
    increment: Annotated[Increment, Field(description="what each run is rounded up to")] = "second"
    minimum: Annotated[Seconds, Field(description="least that is billed for each run")] = 0.0
    discount: Annotated[Share, Field(description="on everything, or on what is committed")] = 0.0
    committed_hours_per_year: Annotated[
        float | None, Field(ge=0, le=8784, description="paid with the discount, even when idle")
    ] = None


class ReservedOffer(_Rented):
    """By the year, paid even when idle."""

    price_key = "price_per_year"
    kind: Literal["reserved"]
    price_per_year: Annotated[Usd | None, Field(description="of one instance")] = None
    discount: Annotated[
        Share, Field(description="off the price of `instance` on demand, for all hours of a year")
    ] = 0.0
    term: Annotated[Seconds, Field(gt=0)] = 365.25 * 86400
    upfront: Annotated[Share, Field(description="share of a term that is paid at its start")] = 0.0
    rest: Annotated[
        Literal["pay", "resell"] | None,
        Field(description="what happens to a term that runs past the horizon"),
    ] = None
    resale: Annotated[Share, Field(description="of the unused part, where it is resold")] = 0.0


class SpotOffer(_Rented):
    """By the hour, and it can be taken away."""

    kind: Literal["spot"]
    price: Annotated[UsdPerHour | None, Field(description="of one instance")] = None
    interruptions_per_hour: Annotated[float, Field(ge=0, le=60, description="of one instance")]
    checkpoint: Annotated[Seconds, Field(description="time to write one")] = 60.0
    restart: Annotated[Seconds, Field(description="until the work goes on")] = 600.0
    checkpoint_every: Annotated[
        Seconds | None, Field(gt=0, description="without it, Daly's optimum")
    ] = None


class OwnedOffer(OfferSpec):
    """Bought, and run at home or in a colocation. What is not given costs nothing."""

    kind: Literal["own"]
    hardware: Usd
    spares: Annotated[Share, Field(description="of the hardware, bought with it")] = 0.0
    installation: Usd = 0.0
    network: Annotated[Usd, Field(description="switches and cables, once")] = 0.0
    power: Annotated[Watts, Field(description="under load")] = 0.0
    idle_power: Watts = 0.0
    pue: Annotated[float, Field(ge=1, le=5)] = 1.0
    electricity: UsdPerKwh = 0.0
    country: Annotated[
        Country | None, Field(description="whose electricity price counts; two letters, like DE")
    ] = None
    colocation_per_year: Annotated[Usd, Field(description="by rack")] = 0.0
    colocation: Annotated[UsdPerKwMonth, Field(description="by kW; electricity on top")] = 0.0
    uplink_per_month: Usd = 0.0
    support_per_year: Annotated[Share, Field(description="of the hardware's price")] = 0.0
    staff_hours_per_month: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    staff: UsdPerHour = 0.0
    gpus: Annotated[int, Field(ge=0, le=1_000_000, description="that can fail")] = 0
    gpu_hours_per_failure: Annotated[float, Field(gt=0, le=1e12)] = 54 * 24 * 16_384 / 419
    price_per_failure: Usd = 0.0
    financed: Annotated[Share, Field(description="of what is paid once")] = 0.0
    interest: Annotated[Share, Field(description="a year")] = 0.0
    loan: Annotated[Seconds, Field(gt=0)] = 3 * 365.25 * 86400
    value_kept_per_year: Annotated[Share, Field(description="of its resale value")] = 0.0
    depreciation: Annotated[
        Seconds, Field(description="instead: the time in which its value falls evenly to nothing")
    ] = 0.0


class Offers(Spec):
    """The work, for how long, and the offers for it."""

    name: Name
    hours_per_year: Annotated[
        float, Field(gt=0, le=8766, description="hours of work a year, at speed 1")
    ] = 2000.0
    load: Annotated[
        Load,
        Field(description="when the work comes; what is owned or reserved is enough for the busiest hour"),
    ] = "steady"  # fmt: skip
    horizon: Annotated[Seconds, Field(description="how long it is needed")] = 3 * 365.25 * 86400
    run: Annotated[
        Seconds | None, Field(gt=0, description="how long one training run takes, at speed 1")
    ] = None
    discount_rate: Annotated[Share, Field(description="a year, for the present value")] = 0.0
    offers: Annotated[
        tuple[
            Annotated[
                OnDemandOffer | ReservedOffer | SpotOffer | OwnedOffer,
                Field(discriminator="kind"),
            ],
            ...,
        ],
        Field(min_length=1, max_length=MOST_LISTED),
    ]

    @model_validator(mode="after")
    def _names_differ(self) -> "Offers":
        names = [offer.name for offer in self.offers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two offers are called {name!r}")
        return self
