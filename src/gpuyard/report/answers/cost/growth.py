"""When a growing team buys its next machine."""

from dataclasses import asdict

from gpuyard import units
from gpuyard.economics.growth import GrowthPlan
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Only, Sentence, Table
from gpuyard.report.figures.cost_curves import growth_option


def growth_answer(plan: GrowthPlan, price_date: str) -> Answer:
    """Every purchase with its month, and what everything costs."""
    purchases = Table(
        "What to buy, at the start of which month",
        ["machine", "month", "researchers then", "GPU-hours needed", "price", "saves"],
        [
            [
                str(one.number),
                str(one.month),
                str(one.people),
                f"{one.demand_gpu_hours:,.0f}",
                units.format_usd(one.price_usd),
                units.format_usd(one.saves_usd),
            ]
            for one in plan.purchases
        ],
    )
    total = (
        f"Total {units.format_usd(plan.total_usd)} over {units.format_months(len(plan.people))}; "
        f"renting everything costs {units.format_usd(plan.rent_all_usd)}. Prices of {price_date}."
    )
    if plan.held_back_by_budget:
        machines = (
            "1 machine" if plan.held_back_by_budget == 1 else f"{plan.held_back_by_budget} machines"
        )
        total += f" The budget delays or rules out {machines}."
    if not plan.purchases:
        why = "the budget is too small" if plan.held_back_by_budget else "renting costs no more"
        total = f"Buy no machine: {why}. {total}"
    return Answer(
        [Only("page", [Sentence(total), growth_chart(plan)]), *([purchases] if plan.purchases else []),
         Only("terminal", [Sentence(total)])],
        asdict(plan) | {"price_date": price_date},
        title="When to buy the next machine",
        verb="cost growth",
        meta=f"Prices of {price_date}",
    )  # fmt: skip


def growth_chart(plan: GrowthPlan) -> Chart:
    """Demand and owned capacity over time."""
    caption = "Where the demand is above what the owned machines can do, the rest is rented."
    return Chart("chart-growth", caption, {ALL_BATCHES: growth_option(plan)})
