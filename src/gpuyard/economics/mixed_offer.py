"""Owning a base and renting the rest, as one more offer beside those of a file."""

from dataclasses import replace

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH, HOURS_PER_YEAR, Array
from gpuyard.economics.offers import (
    PricedOffer,
    extras_usd_per_month,
    months_of,
    owned_of,
    price_day,
    price_offers,
    priced_offer,
    used_cash,
    wanted_machines,
)
from gpuyard.economics.ownership import best_owned_size, owned_cash_by_month, present_value_usd
from gpuyard.specs.offers import Offers, OnDemandOffer, OwnedOffer, SpotOffer


def compare_offers(offers: Offers) -> list[PricedOffer]:
    """What the file has and the best mix of it, the cheapest in today's money first."""
    months = months_of(offers)
    mixes = [
        _mix(own, rent, offers, months)
        for own in offers.offers
        if isinstance(own, OwnedOffer)
        for rent in offers.offers
        if isinstance(rent, SpotOffer | OnDemandOffer) and _is_by_use(rent)
    ]
    best = sorted(mixes, key=lambda one: one.present_value_usd)[:1]
    return sorted([*price_offers(offers), *best], key=lambda one: one.present_value_usd)


def _is_by_use(offer: OnDemandOffer | SpotOffer) -> bool:
    """A commitment is paid used or not, so it is no price for a rest."""
    return isinstance(offer, SpotOffer) or offer.committed_hours_per_year is None


def _mix(
    own: OwnedOffer, rent: OnDemandOffer | SpotOffer, offers: Offers, months: int
) -> PricedOffer:
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
    if owned < float(size.own_all):
        cash = cash + data
    return priced_offer(
        offers,
        months,
        cash,
        name=_name(own, rent, owned, owned >= float(size.own_all)),
        kind="hybrid",
        hours=served * HOURS_PER_YEAR + rented_share * billed_hours,
        machines=owned,
        owned_share=1 - rented_share,
        date=own.date if owned >= float(size.own_all) else price_day(rent) or own.date,
    )


def _name(own: OwnedOffer, rent: OnDemandOffer | SpotOffer, owned: int, everything: bool) -> str:
    if not owned:
        return f"own none, rent all: {rent.name}"
    rest = "rent none" if everything else f"rent the rest: {rent.name}"
    return f"own {owned} × {own.name}; {rest}"
