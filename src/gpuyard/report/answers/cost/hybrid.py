"""How many GPUs to own for a demand, with the rest rented."""

from dataclasses import asdict
from typing import Any

from gpuyard import units
from gpuyard.economics.capacity_mix import CapacityMix
from gpuyard.economics.demand import Demand
from gpuyard.economics.hybrid import Hybrid, HybridPrices
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Only, Part, Sentence, Table
from gpuyard.report.figures.cost_curves import duration_curve_option


def hybrid_answer(
    demand: Demand,
    prices: HybridPrices,
    found: Hybrid,
    mix: CapacityMix | None,
    price_date: str,
    *,
    electricity: str = "",
) -> Answer:
    """The best size beside renting and owning everything, and what a wrong forecast costs."""
    tables = [_sizes_table(demand, found), _wrong_table(found)]
    if mix is not None:
        tables.append(_mix_table(mix))
    summary = (
        f"That costs {units.format_usd(found.best.usd_per_year)} a year; renting everything "
        f"{units.format_usd(found.rent_all.usd_per_year)}, owning enough for the peak "
        f"{units.format_usd(found.own_all.usd_per_year)}."
    )
    page: list[Part] = [Sentence(summary), hybrid_chart(demand, found)]
    rule = [Sentence(_rule(prices, found)), Sentence(f"Prices of {price_date}.")]
    power = [Sentence(electricity)] if electricity else []
    return Answer(
        [Only("page", page), *tables, Only("terminal", rule), *power],
        _document(demand, prices, found, mix, price_date) | {"electricity": electricity or None},
        title=_title(demand, found.best.own_gpus),
        verb="cost hybrid",
        meta=f"Prices of {price_date}",
    )


def hybrid_chart(demand: Demand, hybrid: Hybrid) -> Chart:
    """The duration curve of the demand with what to own of it."""
    caption = "Owned GPUs do what lies below their line; what is above it is rented."
    return Chart("chart-duration", caption, {ALL_BATCHES: duration_curve_option(demand, hybrid)})


def _title(demand: Demand, own: float) -> str:
    if not own:
        return "Rent all GPUs"
    return f"Own {own:g} GPUs, rent {'none' if own >= demand.gpus.max() else 'the rest'}"


def _sizes_table(demand: Demand, found: Hybrid) -> Table:
    sizes = (("best", found.best), ("rent all", found.rent_all), ("own all", found.own_all))
    return Table(
        f"{demand.source}: {demand.gpus.size:,} periods, peak {demand.gpus.max():g} GPUs",
        ["", "GPUs owned", "cost per year", "work on owned", "owned in use"],
        [
            [
                words,
                f"{mix.own_gpus:g}",
                units.format_usd(mix.usd_per_year),
                units.format_share(mix.owned_share),
                units.format_share(mix.utilisation),
            ]
            for words, mix in sizes
        ],
    )


def _wrong_table(found: Hybrid) -> Table:
    return Table(
        f"If demand differs from the forecast, with {found.best.own_gpus:g} "
        f"{'GPU' if found.best.own_gpus == 1 else 'GPUs'} owned",
        ["demand", "cost per year", "better to own", "lost per year"],
        [
            [
                f"{100 * (one.demand_factor - 1):+.0f} %",
                units.format_usd(one.usd_per_year),
                f"{one.best_own_gpus:g}",
                units.format_usd(one.regret_usd_per_year),
            ]
            for one in found.if_wrong
        ],
    )


def _mix_table(mix: CapacityMix) -> Table:
    tiers = [
        [t.name, f"{t.gpus:g}", units.format_share(t.share), units.format_usd(t.usd_per_year)]
        for t in mix.tiers
    ]
    return Table(
        "With reserved GPUs too" + ("" if mix.exact else " (levels of demand merged)"),
        ["", "GPUs", "share of the work", "cost per year"],
        [*tiers, ["total", "", "", units.format_usd(mix.usd_per_year)]],
    )


def _rule(prices: HybridPrices, found: Hybrid) -> str:
    return (
        f"Owning a GPU costs {units.format_usd(prices.owned_usd)}/h even when it is idle, and "
        f"{units.format_usd(prices.running_usd)}/h more in use; renting one costs "
        f"{units.format_usd(prices.rented_usd)}/h. So own what is needed in more than "
        f"{100 * (1 - found.quantile):.0f} % of all hours."
    )


def _document(
    demand: Demand,
    prices: HybridPrices,
    found: Hybrid,
    mix: CapacityMix | None,
    price_date: str,
) -> dict[str, Any]:
    document = asdict(found)
    for one, wrong in zip(document["if_wrong"], found.if_wrong, strict=True):
        one["regret_usd_per_year"] = wrong.regret_usd_per_year
    return {
        "demand": {
            "source": demand.source,
            "periods": int(demand.gpus.size),
            "hours_each": demand.hours_each,
            "gpu_hours": demand.gpu_hours,
            "peak_gpus": float(demand.gpus.max()),
        },
        "prices_usd_per_gpu_hour": asdict(prices),
        "price_date": price_date,
        **document,
        "with_reserved": None if mix is None else asdict(mix),
    }
