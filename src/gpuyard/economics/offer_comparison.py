"""Compare offers by present value, alone and as a mix of owned machines and rented hours."""

from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import prices
from gpuyard.catalog.prices import newest_date
from gpuyard.economics.billing import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    Array,
)
from gpuyard.economics.offers import (
    PricedOffer,
    describe_price_basis,
    extras_usd_per_month,
    horizon_months,
    needed_machines,
    owned_hardware,
    price_date,
    price_offers,
    summarize_payments,
    usage_cash,
)
from gpuyard.economics.ownership import (
    best_owned_size,
    owned_cash_by_month,
    present_value_usd,
)
from gpuyard.specs.offers import Offers, OnDemandOffer, OwnedOffer, SpotOffer


@dataclass(frozen=True)
class OfferComparison:
    """All offers, the lowest present value first.

    A mix that owns everything or nothing is a plain offer, so it is not listed; the note explains it.
    """

    priced: tuple[PricedOffer, ...]
    mix_note: str = ""


@dataclass(frozen=True)
class _Mix:
    offer: PricedOffer
    plain: str  # the plain offer that it equals, if nothing is mixed


def compare_offers(offers: Offers) -> OfferComparison:
    """Compare all offers of the file and their best mix."""
    months = horizon_months(offers)
    mixes = [
        _find_best_mix(own, rent, offers, months)
        for own in offers.offers
        if isinstance(own, OwnedOffer)
        for rent in offers.offers
        if isinstance(rent, SpotOffer | OnDemandOffer) and _is_billed_by_use(rent)
    ]
    priced = price_offers(offers)
    if not mixes:
        return OfferComparison(tuple(priced))
    best = min(mixes, key=lambda mix: mix.offer.present_value_usd)
    if best.plain:
        note = f"Owning some and renting the rest saves nothing here: the best mix {best.plain}."
        return OfferComparison(tuple(priced), note)
    ranked = sorted([*priced, best.offer], key=lambda offer: offer.present_value_usd)
    return OfferComparison(tuple(ranked))


def _is_billed_by_use(offer: OnDemandOffer | SpotOffer) -> bool:
    """Return False for a commitment, which is paid whether used or not."""
    return isinstance(offer, SpotOffer) or offer.committed_hours_per_year is None


def _find_best_mix(
    own: OwnedOffer, rent: OnDemandOffer | SpotOffer, offers: Offers, months: int
) -> _Mix:
    """Own the number of machines with the lowest present value, and rent the rest of the work."""
    needed = needed_machines(offers) / own.speed  # in machines of this kind
    machine = owned_hardware(own, 0.0)
    idle_cash = owned_cash_by_month(machine, months)
    busy_cash = owned_cash_by_month(replace(machine, utilization=1.0), months)
    billed_hours, rent_cash = usage_cash(rent, offers, months)
    data_cash = np.full(months + 1, extras_usd_per_month(rent))
    data_cash[0] = 0.0
    hours = months * HOURS_PER_MONTH
    mean = float(needed.mean())

    def present_value(cash: Array) -> float:
        return float(present_value_usd(cash, offers.discount_rate))

    size = best_owned_size(
        needed,
        owned_usd=present_value(idle_cash) / hours,
        running_usd=present_value(busy_cash - idle_cash) / hours,
        rented_usd=present_value(rent_cash) / hours / mean,
        renting_usd=present_value(data_cash) / hours,
    )
    owned, served = int(size.own), float(size.served)
    rented_share = float(size.rented) / mean
    cash = owned * idle_cash + served * (busy_cash - idle_cash) + rented_share * rent_cash
    owns_everything = owned >= float(size.own_all)
    if not owns_everything:
        cash = cash + data_cash
    offer = summarize_payments(
        offers,
        months,
        cash,
        name=f"own {owned} × {own.name}; rent the rest: {rent.name}",
        kind="hybrid",
        hours=served * HOURS_PER_YEAR + rented_share * billed_hours,
        machines=owned,
        owned_share=1 - rented_share,
        date=price_date(rent) or own.date,
        price_basis=describe_price_basis(own, newest_date(prices()))
        or describe_price_basis(rent, newest_date(prices())),
    )
    if not owned:
        return _Mix(offer, f"rents everything ({rent.name})")
    return _Mix(offer, f"owns enough for everything ({own.name})" if owns_everything else "")
