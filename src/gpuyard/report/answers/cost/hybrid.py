"""The answer of `gpuyard cost hybrid`: how many GPUs to own for a demand, with the rest rented."""

from dataclasses import asdict
from typing import Any

from gpuyard import units
from gpuyard.economics.capacity_mix import CapacityMix
from gpuyard.economics.demand import Demand
from gpuyard.economics.hybrid import Hybrid, HybridPrices
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Part, RendererOnly, Sentence, Table


def hybrid_answer(
    demand: Demand,
    prices: HybridPrices,
    hybrid: Hybrid,
    mix: CapacityMix | None,
    price_date: str,
    *,
    electricity: str = "",
    with_chart: bool = True,
) -> Answer:
    """Compare the best size with renting and owning everything, and show what a wrong forecast costs.

    Only pages need the chart.
    """
    tables = [_create_sizes_table(demand, hybrid), _create_forecast_table(hybrid)]
    if mix is not None:
        tables.append(_create_mix_table(mix))
    title = _format_title(demand, hybrid.best.own_gpus)
    summary = (
        f"{title}: {units.format_usd(hybrid.best.usd_per_year)} per year; renting everything "
        f"{units.format_usd(hybrid.rent_all.usd_per_year)}, owning enough for the peak "
        f"{units.format_usd(hybrid.own_all.usd_per_year)}."
    )
    chart: list[Part] = [create_hybrid_chart(demand, hybrid)] if with_chart else []
    rule = [Sentence(_describe_rule(prices, hybrid)), Sentence(f"Prices from {price_date}.")]
    power = [Sentence(electricity)] if electricity else []
    return Answer(
        [
            Sentence(summary),
            RendererOnly("page", chart),
            *tables,
            RendererOnly("terminal", rule),
            *power,
        ],
        _create_document(demand, prices, hybrid, mix, price_date)
        | {"electricity": electricity or None},
        title=title,
        verb="cost hybrid",
        meta=f"Prices from {price_date}",
    )


def create_hybrid_chart(demand: Demand, hybrid: Hybrid) -> Chart:
    """Chart the duration curve of the demand with the owned GPUs."""
    from gpuyard.report.figures.cost_curves import build_duration_curve_chart

    caption = "Owned GPUs do the work below their line; the work above it is rented."
    return Chart(
        "chart-duration", caption, {ALL_BATCHES: build_duration_curve_chart(demand, hybrid)}
    )


def _format_title(demand: Demand, own_gpus: float) -> str:
    if not own_gpus:
        return "Rent all GPUs"
    rented = "none" if own_gpus >= demand.gpus.max() else "the rest"
    return f"Own {own_gpus:g} GPUs, rent {rented}"


def _create_sizes_table(demand: Demand, hybrid: Hybrid) -> Table:
    sizes = (("best", hybrid.best), ("rent all", hybrid.rent_all), ("own all", hybrid.own_all))
    return Table(
        f"{demand.source}: {demand.gpus.size:,} periods, peak {demand.gpus.max():g} GPUs",
        ["", "GPUs owned", "cost per year", "work on owned", "owned in use"],
        [
            [
                name,
                f"{mix.own_gpus:g}",
                units.format_usd(mix.usd_per_year),
                units.format_share(mix.owned_share),
                units.format_share(mix.utilization),
            ]
            for name, mix in sizes
        ],
    )


def _create_forecast_table(hybrid: Hybrid) -> Table:
    return Table(
        f"If demand differs from the forecast, with {hybrid.best.own_gpus:g} "
        f"{'GPU' if hybrid.best.own_gpus == 1 else 'GPUs'} owned",
        ["demand", "cost per year", "better to own", "lost per year"],
        [
            [
                f"{100 * (forecast.demand_factor - 1):+.0f}%",
                units.format_usd(forecast.usd_per_year),
                f"{forecast.best_own_gpus:g}",
                units.format_usd(forecast.regret_usd_per_year),
            ]
            for forecast in hybrid.if_wrong
        ],
    )


def _create_mix_table(mix: CapacityMix) -> Table:
    tiers = [
        [t.name, f"{t.gpus:g}", units.format_share(t.share), units.format_usd(t.usd_per_year)]
        for t in mix.tiers
    ]
    return Table(
        "With reserved GPUs too" + ("" if mix.exact else " (levels of demand merged)"),
        ["", "GPUs", "share of the work", "cost per year"],
        [*tiers, ["total", "", "", units.format_usd(mix.usd_per_year)]],
    )


def _describe_rule(prices: HybridPrices, hybrid: Hybrid) -> str:
    return (
        f"Owning a GPU costs {units.format_usd(prices.owned_usd)}/h even when it is idle, and "
        f"{units.format_usd(prices.running_usd)}/h more in use; renting one costs "
        f"{units.format_usd(prices.rented_usd)}/h. So own the GPUs that are needed in more than "
        f"{100 * (1 - hybrid.quantile):.0f}% of all hours."
    )


def _create_document(
    demand: Demand,
    prices: HybridPrices,
    hybrid: Hybrid,
    mix: CapacityMix | None,
    price_date: str,
) -> dict[str, Any]:
    document = asdict(hybrid)
    for entry, forecast in zip(document["if_wrong"], hybrid.if_wrong, strict=True):
        entry["regret_usd_per_year"] = forecast.regret_usd_per_year
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
