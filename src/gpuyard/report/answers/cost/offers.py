"""Offers side by side, for the same work."""

import datetime
from collections.abc import Sequence
from dataclasses import asdict

from gpuyard import units
from gpuyard.economics.offers import OfferComparison, PricedOffer, electricity_of
from gpuyard.report.answer import ALL_BATCHES, Answer, Bullets, Chart, Column, Only, Sentence, Table
from gpuyard.report.figures.cost_curves import cash_curve_option
from gpuyard.specs.offers import Offers, OwnedOffer

_COLUMNS = (
    "offer",
    "how acquired",
    "total",
    Column("present value", 1),
    "per hour of work",
    Column("per run", 2),
    Column("price date", 3),
)


def offers_answer(offers: Offers, compared: OfferComparison, given_on: datetime.date) -> Answer:
    """All of them, the cheapest first."""
    priced = compared.priced
    months = len(priced[0].cash_by_month) - 1
    table = Table(
        f"{offers.name}: {offers.hours_per_year:,.0f} hours of work a year, "
        f"over {units.format_months(months)}",
        _COLUMNS,
        [
            [
                offer.name,
                offer.kind,
                units.format_usd(offer.total_usd),
                units.format_usd(offer.present_value_usd),
                units.format_usd(offer.usd_per_hour_of_work),
                "" if offer.usd_per_run is None else units.format_usd(offer.usd_per_run),
                offer.price_date.isoformat() if offer.price_date else "as given",
            ]
            for offer in priced
        ],
    )
    first = priced[0]
    cheapest = (
        f"The cheapest is {first.name}: {units.format_usd(first.total_usd)} total, "
        f"{units.format_usd(first.usd_per_hour_of_work)} per hour of work."
    )
    electricity = [
        f"{offer.name}: {words[0].lower()}{words[1:]}"
        for offer in offers.offers
        if isinstance(offer, OwnedOffer) and (words := electricity_of(offer)[1])
    ]
    prices = f"Prices of the days shown, others as given on {given_on}"
    documents = [asdict(o) | {"price_date": (o.price_date or given_on).isoformat()} for o in priced]
    return Answer(
        [
            Only("page", [Sentence(cheapest), offers_chart(priced)]),
            table,
            *([Sentence(compared.mix_note)] if compared.mix_note else []),
            Only("terminal", [Sentence(f"{prices}.")]),
            *([Bullets(electricity)] if electricity else []),
        ],
        {
            "name": offers.name,
            "offers": documents,
            "mix_note": compared.mix_note,
            "electricity": electricity,
        },
        title=offers.name,
        verb="cost compare",
        meta=prices,
    )


def offers_chart(offers: Sequence[PricedOffer]) -> Chart:
    """Payments by month of every offer."""
    cash = {offer.name: offer.cash_by_month for offer in offers}
    option = cash_curve_option(cash, "month by month, for the same work")
    caption = "All payments so far; a drop in the last month is the resale."
    return Chart("chart-cash", caption, {ALL_BATCHES: option})
