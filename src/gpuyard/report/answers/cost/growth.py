"""The answer of `gpuyard cost growth`: when a growing team should buy its next machine."""

from dataclasses import asdict

from gpuyard import units
from gpuyard.economics.growth import GrowthPlan
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Part, RendererOnly, Sentence, Table


def growth_answer(plan: GrowthPlan, price_date: str, *, with_chart: bool = True) -> Answer:
    """Show every purchase with its month, and the total cost; only pages need the chart."""
    purchases = Table(
        "Purchases, at the start of the month",
        ["machine", "month", "researchers then", "GPU-hours needed", "price", "saves"],
        [
            [
                str(purchase.number),
                str(purchase.month),
                str(purchase.people),
                f"{purchase.demand_gpu_hours:,.0f}",
                units.format_usd(purchase.price_usd),
                units.format_usd(purchase.saves_usd),
            ]
            for purchase in plan.purchases
        ],
    )
    total = (
        f"Total {units.format_usd(plan.total_usd)} over {units.format_months(len(plan.people))}; "
        f"renting everything costs {units.format_usd(plan.rent_all_usd)}. Prices from {price_date}."
    )
    if plan.held_back_by_budget:
        machines = (
            "1 machine" if plan.held_back_by_budget == 1 else f"{plan.held_back_by_budget} machines"
        )
        total += f" The budget delays or rules out {machines}."
    if not plan.purchases:
        why = "the budget is too small" if plan.held_back_by_budget else "renting costs no more"
        total = f"Buy no machine: {why}. {total}"
    page: list[Part] = [Sentence(total), *([create_growth_chart(plan)] if with_chart else [])]
    return Answer(
        [
            RendererOnly("page", page),
            *([purchases] if plan.purchases else []),
            RendererOnly("terminal", [Sentence(total)]),
        ],
        asdict(plan) | {"price_date": price_date},
        title="When to buy the next machine",
        verb="cost growth",
        rows="purchases",
        meta=f"Prices from {price_date}",
    )


def create_growth_chart(plan: GrowthPlan) -> Chart:
    """Chart demand and owned capacity over time."""
    from gpuyard.report.figures.cost_curves import build_growth_chart

    caption = "Demand above the capacity of the owned machines is rented."
    return Chart("chart-growth", caption, {ALL_BATCHES: build_growth_chart(plan)})
