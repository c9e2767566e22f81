"""The answer of `gpuyard cost compare`: offers side by side, for the same work."""

import datetime
from collections.abc import Sequence
from dataclasses import asdict

from gpuyard import units
from gpuyard.economics.offer_comparison import OfferComparison
from gpuyard.economics.offers import PricedOffer, electricity_price
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Chart,
    Column,
    Part,
    RendererOnly,
    Sentence,
    Table,
)
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


def offers_answer(
    offers: Offers,
    compared: OfferComparison,
    given_on: datetime.date,
    *,
    with_chart: bool = True,
) -> Answer:
    """Show all offers, the cheapest first; only pages need the chart."""
    priced = compared.priced
    months = len(priced[0].cash_by_month) - 1
    table = Table(
        f"{offers.name}: {offers.hours_per_year:,.0f} hours of work per year, "
        f"over {units.format_months(months)}",
        _COLUMNS,
        [
            [
                offer.name,
                offer.kind,
                _format_total(offer),
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
        f"{offer.name}: {sentence[0].lower()}{sentence[1:]}"
        for offer in offers.offers
        if isinstance(offer, OwnedOffer) and (sentence := electricity_price(offer)[1])
    ]
    prices = f"Prices from the dates shown, others as given on {given_on}"
    page: list[Part] = [Sentence(cheapest), *([_create_chart(priced)] if with_chart else [])]
    documents = [asdict(o) | {"price_date": (o.price_date or given_on).isoformat()} for o in priced]
    basis = _describe_basis(priced)
    return Answer(
        [
            *([Sentence(basis, "caution")] if basis else []),
            RendererOnly("page", page),
            table,
            *([Sentence(compared.mix_note)] if compared.mix_note else []),
            RendererOnly("terminal", [Sentence(f"{prices}.")]),
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
        rows="offers",
        meta=prices,
    )


def _describe_basis(priced: Sequence[PricedOffer]) -> str:
    """Describe the old or estimated price on which it depends that the first offer is the cheapest."""
    first, *others = priced
    if first.price_basis:
        return f"That {first.name} is the cheapest rests on {first.price_basis}."
    cheaper = next(
        (o for o in others if o.total_usd_range and o.total_usd_range[0] < first.total_usd), None
    )
    if cheaper is None:
        return ""
    return (
        f"That {first.name} is the cheapest rests on {cheaper.price_basis}: at the low end, "
        f"{cheaper.name} costs less."
    )


def _format_total(offer: PricedOffer) -> str:
    """Format the total, with its range if the price of the hardware is one."""
    total = units.format_usd(offer.total_usd)
    if offer.total_usd_range is None:
        return total
    low, high = map(units.format_usd, offer.total_usd_range)
    return f"{total} ({low} – {high})"


def _create_chart(offers: Sequence[PricedOffer]) -> Chart:
    """Chart the payments of every offer by month."""
    from gpuyard.report.figures.cost_curves import build_cash_curve_chart

    cash = {offer.name: offer.cash_by_month for offer in offers}
    option = build_cash_curve_chart(cash, "month by month, for the same work")
    caption = "Cumulative payments; a drop in the last month is the resale."
    return Chart("chart-cash", caption, {ALL_BATCHES: option})
