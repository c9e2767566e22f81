"""Every way to get the same work done, side by side: total, present value, cash by month, and the price
of an hour of work and of a finished training run. Owning a base and renting the rest is one more offer."""

import datetime
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import price_named
from gpuyard.catalog.electricity import counted_tariff
from gpuyard.economics.billing import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    INCREMENTS,
    Array,
    billed_hours,
    committed_usd,
    egress_usd,
    reserved_cash_by_month,
    spot_hours_per_useful_hour,
    storage_usd,
)
from gpuyard.economics.demand import described_demand
from gpuyard.economics.ownership import (
    Owned,
    best_owned_size,
    owned_cash_by_month,
    present_value_usd,
)
from gpuyard.errors import UserMistake
from gpuyard.specs.offers import Offers, OnDemandOffer, OwnedOffer, ReservedOffer, SpotOffer

_GB = 1e9
_MOST_MONTHS = 600
AnyOffer = OnDemandOffer | ReservedOffer | SpotOffer | OwnedOffer


@dataclass(frozen=True)
class PricedOffer:
    """What one offer comes to over the horizon."""

    name: str
    kind: str
    machine_hours_per_year: float  # of all machines, in use or billed
    machines: int  # owned or reserved side by side; 0 where all is rented by use
    owned_share: float  # of the work
    total_usd: float
    present_value_usd: float
    usd_per_hour_of_work: float
    usd_per_run: float | None
    price_date: datetime.date | None  # None: as the file says, without a date
    cash_by_month: tuple[float, ...]


def price_offers(offers: Offers) -> list[PricedOffer]:
    """All that the file has, the cheapest in today's money first."""
    months = months_of(offers)
    priced = [_price(offer, offers, months) for offer in offers.offers]
    return sorted(priced, key=lambda one: one.present_value_usd)


def months_of(offers: Offers) -> int:
    months = round(offers.horizon / (HOURS_PER_YEAR * 3600 / 12))
    if not 1 <= months <= _MOST_MONTHS:
        raise UserMistake(f"expected a horizon of 1 month to {_MOST_MONTHS // 12} years")
    return months


def wanted_machines(offers: Offers) -> Array:
    """How many machines of speed 1 the work wants, hour by hour through a year."""
    shape = described_demand(offers.load, 1.0).gpus
    wanted: Array = shape / shape.mean() * (offers.hours_per_year / HOURS_PER_YEAR)
    return wanted


def electricity_of(offer: OwnedOffer) -> tuple[float, str]:
    """What a kWh costs, and the sentence that says whose price it is or that none is counted."""
    asked = ("'power'", "'electricity' or 'country'")
    return counted_tariff(offer.power, offer.electricity, offer.country, asked)


def owned_of(offer: OwnedOffer, utilisation: float) -> Owned:
    """The offer as the formulas take it."""
    return Owned(
        hardware_usd=offer.hardware,
        spares_share=offer.spares,
        installation_usd=offer.installation,
        network_usd=offer.network,
        watts=offer.power,
        idle_watts=offer.idle_power,
        utilisation=utilisation,
        pue=offer.pue,
        usd_per_kwh=electricity_of(offer)[0],
        colocation_usd_per_year=offer.colocation_per_year,
        colocation_usd_per_kw_month=offer.colocation,
        network_usd_per_month=offer.uplink_per_month,
        support_share_per_year=offer.support_per_year,
        staff_hours_per_month=offer.staff_hours_per_month,
        staff_usd_per_hour=offer.staff,
        gpus=offer.gpus,
        gpu_hours_per_failure=offer.gpu_hours_per_failure,
        usd_per_failure=offer.price_per_failure,
        financed_share=offer.financed,
        interest_per_year=offer.interest,
        loan_years=offer.loan / (HOURS_PER_YEAR * 3600),
        value_kept_per_year=offer.value_kept_per_year,
        straight_line_years=offer.depreciation / (HOURS_PER_YEAR * 3600),
    )


def priced_offer(
    offers: Offers,
    months: int,
    cash: Array,
    *,
    name: str,
    kind: str,
    hours: float,
    machines: int,
    owned_share: float,
    date: datetime.date | None,
) -> PricedOffer:
    """Payments by month as what compares."""
    total = float(cash.sum())
    work = offers.hours_per_year * months / 12
    run = offers.run
    return PricedOffer(
        name=name,
        kind=kind,
        machine_hours_per_year=hours,
        machines=machines,
        owned_share=owned_share,
        total_usd=total,
        present_value_usd=float(present_value_usd(cash, offers.discount_rate)),
        usd_per_hour_of_work=total / work,
        usd_per_run=None if run is None else total / work * run / 3600,
        price_date=date,
        cash_by_month=tuple(cash.tolist()),
    )


def price_day(offer: AnyOffer) -> datetime.date | None:
    """Of the price; a catalog instance brings its own."""
    if isinstance(offer, OwnedOffer) or offer.instance is None:
        return offer.date
    return price_named(offer.instance).date


def _price(offer: AnyOffer, offers: Offers, months: int) -> PricedOffer:
    hours, machines = offers.hours_per_year / offer.speed, 0
    if isinstance(offer, OwnedOffer | ReservedOffer):
        machines = _machines(offer, offers, hours)
        if isinstance(offer, OwnedOffer):
            owned = owned_of(offer, hours / HOURS_PER_YEAR / machines)
            cash = machines * owned_cash_by_month(owned, months)
        else:
            cash = machines * _reserved_cash(offer, months)
    else:
        hours, cash = used_cash(offer, offers, months)
    if not isinstance(offer, OwnedOffer):
        cash[1:] += extras_usd_per_month(offer)
    return priced_offer(
        offers, months, cash, name=offer.name, kind=offer.kind, hours=hours, machines=machines,
        owned_share=float(isinstance(offer, OwnedOffer)), date=price_day(offer),
    )  # fmt: skip


def _machines(offer: OwnedOffer | ReservedOffer, offers: Offers, hours: float) -> int:
    """Enough for the busiest hour; work that comes evenly must fit into the hours of one."""
    if offers.load == "steady":
        _check_year(offer, hours)
        return 1
    peak = float(wanted_machines(offers).max()) / offer.speed
    return max(1, int(np.ceil(peak - 1e-9)))


def used_cash(offer: OnDemandOffer | SpotOffer, offers: Offers, months: int) -> tuple[float, Array]:
    """Billed hours a year and payments of what is rented by use, without its data."""
    if isinstance(offer, SpotOffer):
        hours = offers.hours_per_year / offer.speed
        return _spot(offer, hours, months, steady=offers.load == "steady")
    return _on_demand(offer, offers, months)


def _on_demand(offer: OnDemandOffer, offers: Offers, months: int) -> tuple[float, Array]:
    hours = offers.hours_per_year / offer.speed
    if offers.run is not None:
        run = offers.run / 3600 / offer.speed
        billed = billed_hours(run, INCREMENTS[offer.increment], offer.minimum / 3600)
        hours *= float(billed) / run
    if offers.load == "steady":
        _check_year(offer, hours)
    per_hour = offer.price if offer.price is not None else _listed(offer)
    per_hour *= offer.count
    if offer.committed_hours_per_year is None:
        yearly = per_hour * hours * (1 - offer.discount)
    else:
        committed = offer.committed_hours_per_year
        yearly = float(
            committed_usd(hours, per_hour, committed_hours=committed, discount=offer.discount)
        )
    return hours, _evenly(yearly, months)


def _spot(offer: SpotOffer, hours: float, months: int, *, steady: bool) -> tuple[float, Array]:
    # any of the instances that is taken away stops the job
    every = None if offer.checkpoint_every is None else offer.checkpoint_every / 3600
    factor = float(
        spot_hours_per_useful_hour(
            offer.interruptions_per_hour * offer.count,
            offer.checkpoint / 3600,
            offer.restart / 3600,
            every,
        )
    )
    if not np.isfinite(factor) or (steady and hours * factor > HOURS_PER_YEAR + 1e-6):
        raise UserMistake(
            f"{offer.name}: at {offer.interruptions_per_hour * offer.count:g} interruptions an hour "
            f"the work of a year does not fit into a year; write checkpoints sooner or faster"
        )
    price = offer.price if offer.price is not None else _listed(offer, spot=True)
    return hours * factor, _evenly(price * offer.count * hours * factor, months)


def _reserved_cash(offer: ReservedOffer, months: int) -> Array:
    yearly = offer.price_per_year
    if yearly is None:
        yearly = _listed(offer) * HOURS_PER_YEAR * (1 - offer.discount)
    try:
        return reserved_cash_by_month(
            months,
            yearly * offer.count,
            term_years=offer.term / (HOURS_PER_YEAR * 3600),
            upfront_share=offer.upfront,
            rest=offer.rest,
            resale_share=offer.resale,
        )
    except UserMistake as mistake:
        raise UserMistake(f"{offer.name}: {mistake} (keys 'term' and 'rest')") from None


def _listed(offer: OnDemandOffer | ReservedOffer | SpotOffer, *, spot: bool = False) -> float:
    price = price_named(offer.instance or "")
    if not spot:
        return price.usd_per_hour
    if price.spot_usd_per_hour is None:
        raise UserMistake(f"{offer.name}: {offer.instance} has no spot price; give a 'price'")
    return price.spot_usd_per_hour


def extras_usd_per_month(offer: OnDemandOffer | ReservedOffer | SpotOffer) -> float:
    """What its data costs in the cloud."""
    kept, moved = offer.storage, offer.egress
    usd = float(storage_usd(kept.size / _GB, 1, kept.price_per_gb_month)) if kept else 0.0
    if moved:
        size, free = moved.size_per_month / _GB, moved.free_per_month / _GB
        usd += float(egress_usd(size, moved.price_per_gb, free))
    return usd


def _evenly(usd_per_year: float, months: int) -> Array:
    cash = np.full(months + 1, usd_per_year / 12)
    cash[0] = 0.0
    return cash


def _check_year(offer: AnyOffer, hours: float) -> None:
    if hours > HOURS_PER_YEAR + 1e-6:
        raise UserMistake(
            f"{offer.name}: the work takes {hours:,.0f} hours a year at this speed, "
            "and a year has 8,766; offer more of it, with a higher 'speed'"
        )


@dataclass(frozen=True)
class OfferComparison:
    """Offers, the cheapest in today's money first. A mix that owns all or nothing is a plain offer: it is not among
    them, and the note says so."""

    priced: tuple[PricedOffer, ...]
    mix_note: str = ""


@dataclass(frozen=True)
class _Mix:
    offer: PricedOffer
    plain: str  # what it comes down to where nothing is mixed


def compare_offers(offers: Offers) -> OfferComparison:
    """What the file has and the best mix of it."""
    months = months_of(offers)
    mixes = [
        _mix(own, rent, offers, months)
        for own in offers.offers
        if isinstance(own, OwnedOffer)
        for rent in offers.offers
        if isinstance(rent, SpotOffer | OnDemandOffer) and _is_by_use(rent)
    ]
    priced = price_offers(offers)
    if not mixes:
        return OfferComparison(tuple(priced))
    best = min(mixes, key=lambda one: one.offer.present_value_usd)
    if best.plain:
        note = f"Owning some and renting the rest saves nothing here: the best mix {best.plain}."
        return OfferComparison(tuple(priced), note)
    ranked = sorted([*priced, best.offer], key=lambda one: one.present_value_usd)
    return OfferComparison(tuple(ranked))


def _is_by_use(offer: OnDemandOffer | SpotOffer) -> bool:
    """A commitment is paid used or not, so it is no price for a rest."""
    return isinstance(offer, SpotOffer) or offer.committed_hours_per_year is None


def _mix(own: OwnedOffer, rent: OnDemandOffer | SpotOffer, offers: Offers, months: int) -> _Mix:
    """As many of `own` as is cheapest in today's money, and the rest of the work by `rent`."""
    wanted = wanted_machines(offers) / own.speed  # in machines of this kind
    machine = owned_of(own, 0.0)
    idle = owned_cash_by_month(machine, months)
    busy = owned_cash_by_month(replace(machine, utilisation=1.0), months)
    billed_hours, use = used_cash(rent, offers, months)
    data = np.full(months + 1, extras_usd_per_month(rent))
    data[0] = 0.0
    hours = months * HOURS_PER_MONTH
    mean = float(wanted.mean())

    def worth(cash: Array) -> float:
        return float(present_value_usd(cash, offers.discount_rate))

    size = best_owned_size(
        wanted,
        owned_usd=worth(idle) / hours,
        running_usd=worth(busy - idle) / hours,
        rented_usd=worth(use) / hours / mean,
        renting_usd=worth(data) / hours,
    )
    owned, served = int(size.own), float(size.served)
    rented_share = float(size.rented) / mean
    cash = owned * idle + served * (busy - idle) + rented_share * use
    everything = owned >= float(size.own_all)
    if not everything:
        cash = cash + data
    offer = priced_offer(
        offers,
        months,
        cash,
        name=f"own {owned} × {own.name}; rent the rest: {rent.name}",
        kind="hybrid",
        hours=served * HOURS_PER_YEAR + rented_share * billed_hours,
        machines=owned,
        owned_share=1 - rented_share,
        date=price_day(rent) or own.date,
    )
    if not owned:
        return _Mix(offer, f"rents all ({rent.name})")
    return _Mix(offer, f"owns enough for all ({own.name})" if everything else "")
