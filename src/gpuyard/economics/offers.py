"""Price all offers for the same work: total, present value, cash by month, and price per hour and per run.

The best mix of owned machines with rented ones is one more offer.
"""

import datetime
from dataclasses import dataclass

import numpy as np

from gpuyard import units
from gpuyard.catalog import find_price, prices
from gpuyard.catalog.electricity import price_electricity
from gpuyard.catalog.prices import newest_date
from gpuyard.economics.billing import (
    HOURS_PER_YEAR,
    INCREMENTS,
    Array,
    billed_hours,
    committed_usd,
    egress_usd,
    reserved_cash_by_month,
    storage_usd,
)
from gpuyard.economics.demand import demand_from_load
from gpuyard.economics.goodput import hours_per_useful_hour
from gpuyard.economics.ownership import (
    OwnedHardware,
    owned_cash_by_month,
    present_value_usd,
)
from gpuyard.economics.purchase import OLD_YEARS, Purchase, describe_age, price_machine
from gpuyard.errors import UserMistake
from gpuyard.specs.offers import Offers, OnDemandOffer, OwnedOffer, ReservedOffer, SpotOffer

_GB = 1e9
_MAX_MONTHS = 600
AnyOffer = OnDemandOffer | ReservedOffer | SpotOffer | OwnedOffer


@dataclass(frozen=True)
class PricedOffer:
    """The cost of one offer over the horizon."""

    name: str
    kind: str
    machine_hours_per_year: float  # of all machines, used or billed
    machines: int  # owned or reserved in parallel; 0 if all are rented by use
    owned_share: float  # of the work
    total_usd: float
    present_value_usd: float
    usd_per_hour_of_work: float
    usd_per_run: float | None
    price_date: datetime.date | None  # None: given in the file without a date
    cash_by_month: tuple[float, ...]
    total_usd_range: tuple[float, float] | None = None  # None: no price is a range
    price_basis: str = ""  # the old or estimated price that it rests on


def price_offers(offers: Offers) -> list[PricedOffer]:
    """Price all offers of the file, the lowest present value first."""
    months = horizon_months(offers)
    priced = [_price_offer(offer, offers, months) for offer in offers.offers]
    return sorted(priced, key=lambda offer: offer.present_value_usd)


def horizon_months(offers: Offers) -> int:
    months = round(offers.horizon / (HOURS_PER_YEAR * 3600 / 12))
    if not 1 <= months <= _MAX_MONTHS:
        raise UserMistake(f"expected a horizon of 1 month to {_MAX_MONTHS // 12} years")
    return months


def needed_machines(offers: Offers) -> Array:
    """Return the number of machines of speed 1 that the work needs in each hour of a year."""
    shape = demand_from_load(offers.load, 1.0).gpus
    needed: Array = shape / shape.mean() * (offers.hours_per_year / HOURS_PER_YEAR)
    return needed


def electricity_price(offer: OwnedOffer) -> tuple[float, str]:
    """Return the price per kWh, and a sentence about its source or why power is not counted."""
    keys = ("'power'", "'electricity' or 'country'")
    return price_electricity(offer.power, offer.electricity, offer.country, keys)


def find_purchase(offer: OwnedOffer) -> Purchase:
    """Return the price of the offer's hardware, from the file or from the catalog."""
    if offer.machine is not None:
        return price_machine(offer.machine)
    usd = offer.hardware or 0.0
    low, high = offer.hardware_range or (usd, usd)
    return Purchase(usd, low, high, date=offer.date)


def owned_hardware(
    offer: OwnedOffer, utilization: float, hardware_usd: float | None = None
) -> OwnedHardware:
    """Return the offer's hardware, at its price or another one, and its operating costs for the formulas."""
    return OwnedHardware(
        hardware_usd=find_purchase(offer).usd if hardware_usd is None else hardware_usd,
        spares_share=offer.spares,
        installation_usd=offer.installation,
        network_usd=offer.network,
        watts=offer.power,
        idle_watts=offer.idle_power,
        utilization=utilization,
        pue=offer.pue,
        usd_per_kwh=electricity_price(offer)[0],
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


def summarize_payments(
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
    total_range: tuple[float, float] | None = None,
    price_basis: str = "",
) -> PricedOffer:
    """Return the comparable figures of an offer from its payments by month."""
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
        total_usd_range=total_range,
        price_basis=price_basis,
    )


def price_date(offer: AnyOffer) -> datetime.date | None:
    """Return the date of the price; a catalog instance has its own."""
    if isinstance(offer, OwnedOffer):
        return find_purchase(offer).date
    return offer.date if offer.instance is None else find_price(offer.instance).date


def describe_price_basis(offer: AnyOffer, newest: datetime.date) -> str:
    """Describe the old or estimated price of an offer; empty if it has none. Ages are to the newest price."""
    if isinstance(offer, OwnedOffer) and (offer.machine or offer.hardware_range):
        purchase = find_purchase(offer)
        if offer.machine:
            return purchase.describe_basis(newest)
        low, high = units.format_usd(purchase.usd_low), units.format_usd(purchase.usd_high)
        return f"a price between {low} and {high}"
    date = price_date(offer)
    if date is None or (newest - date).days / 365.25 <= OLD_YEARS:
        return ""
    return f"the price of {offer.name}{describe_age(date, newest)}"


def _price_offer(offer: AnyOffer, offers: Offers, months: int) -> PricedOffer:
    hours, machines = offers.hours_per_year / offer.speed, 0
    total_range: tuple[float, float] | None = None
    if isinstance(offer, OwnedOffer | ReservedOffer):
        machines = _count_machines(offer, offers, hours)
        if isinstance(offer, OwnedOffer):
            busy = hours / HOURS_PER_YEAR / machines
            cash = machines * owned_cash_by_month(owned_hardware(offer, busy), months)
            purchase = find_purchase(offer)
            if purchase.is_range:
                low, high = (
                    machines
                    * float(owned_cash_by_month(owned_hardware(offer, busy, usd), months).sum())
                    for usd in (purchase.usd_low, purchase.usd_high)
                )
                total_range = (low, high)
        else:
            cash = machines * _reserved_cash(offer, months)
    else:
        hours, cash = usage_cash(offer, offers, months)
    if not isinstance(offer, OwnedOffer):
        cash[1:] += extras_usd_per_month(offer)
    return summarize_payments(
        offers, months, cash, name=offer.name, kind=offer.kind, hours=hours, machines=machines,
        owned_share=float(isinstance(offer, OwnedOffer)), date=price_date(offer),
        total_range=total_range, price_basis=describe_price_basis(offer, newest_date(prices())),
    )  # fmt: skip


def _count_machines(offer: OwnedOffer | ReservedOffer, offers: Offers, hours: float) -> int:
    """Return enough machines for the busiest hour; steady work must fit on one machine."""
    if offers.load == "steady":
        _check_year(offer, hours)
        return 1
    peak = float(needed_machines(offers).max()) / offer.speed
    return max(1, int(np.ceil(peak - 1e-9)))


def usage_cash(
    offer: OnDemandOffer | SpotOffer, offers: Offers, months: int
) -> tuple[float, Array]:
    """Return the billed hours per year and the payments for use, without data costs."""
    if isinstance(offer, SpotOffer):
        hours = offers.hours_per_year / offer.speed
        return _price_spot(offer, hours, months, steady=offers.load == "steady")
    return _price_on_demand(offer, offers, months)


def _price_on_demand(offer: OnDemandOffer, offers: Offers, months: int) -> tuple[float, Array]:
    hours = offers.hours_per_year / offer.speed
    if offers.run is not None:
        run = offers.run / 3600 / offer.speed
        billed = billed_hours(run, INCREMENTS[offer.increment], offer.minimum / 3600)
        hours *= float(billed) / run
    if offers.load == "steady":
        _check_year(offer, hours)
    per_hour = offer.price if offer.price is not None else _list_price(offer)
    per_hour *= offer.count
    if offer.committed_hours_per_year is None:
        yearly = per_hour * hours * (1 - offer.discount)
    else:
        committed = offer.committed_hours_per_year
        yearly = float(
            committed_usd(hours, per_hour, committed_hours=committed, discount=offer.discount)
        )
    return hours, _spread_evenly(yearly, months)


def _price_spot(
    offer: SpotOffer, hours: float, months: int, *, steady: bool
) -> tuple[float, Array]:
    # losing any one of the instances stops the job
    interval = None if offer.checkpoint_every is None else offer.checkpoint_every / 3600
    factor = float(
        hours_per_useful_hour(
            offer.interruptions_per_hour * offer.count,
            offer.checkpoint / 3600,
            offer.restart / 3600,
            interval,
        )
    )
    if not np.isfinite(factor) or (steady and hours * factor > HOURS_PER_YEAR + 1e-6):
        raise UserMistake(
            f"{offer.name}: at {offer.interruptions_per_hour * offer.count:g} interruptions per hour, "
            f"a year's work does not fit in a year; checkpoint more often or faster"
        )
    price = offer.price if offer.price is not None else _list_price(offer, spot=True)
    return hours * factor, _spread_evenly(price * offer.count * hours * factor, months)


def _reserved_cash(offer: ReservedOffer, months: int) -> Array:
    yearly = offer.price_per_year
    if yearly is None:
        yearly = _list_price(offer) * HOURS_PER_YEAR * (1 - offer.discount)
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


def _list_price(offer: OnDemandOffer | ReservedOffer | SpotOffer, *, spot: bool = False) -> float:
    price = find_price(offer.instance or "")
    if not spot:
        return price.usd_per_hour
    if price.spot_usd_per_hour is None:
        raise UserMistake(f"{offer.name}: {offer.instance} has no spot price; add a 'price'")
    return price.spot_usd_per_hour


def extras_usd_per_month(offer: OnDemandOffer | ReservedOffer | SpotOffer) -> float:
    """Return the monthly price of the offer's data in the cloud."""
    storage, egress = offer.storage, offer.egress
    usd = float(storage_usd(storage.size / _GB, 1, storage.price_per_gb_month)) if storage else 0.0
    if egress:
        size, free = egress.size_per_month / _GB, egress.free_per_month / _GB
        usd += float(egress_usd(size, egress.price_per_gb, free))
    return usd


def _spread_evenly(usd_per_year: float, months: int) -> Array:
    cash = np.full(months + 1, usd_per_year / 12)
    cash[0] = 0.0
    return cash


def _check_year(offer: AnyOffer, hours: float) -> None:
    if hours > HOURS_PER_YEAR + 1e-6:
        raise UserMistake(
            f"{offer.name}: the work takes {hours:,.0f} hours per year at this speed, "
            "and a year has 8,766; offer more machines, with a higher 'speed'"
        )
