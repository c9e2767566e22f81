"""The cost part of a study's answer: whether to rent or to buy."""

from gpuyard import units
from gpuyard.report import formats
from gpuyard.report.answer import ALL_BATCHES, Chart, Charts, Part, Section, Sentence, Table
from gpuyard.report.figures.cost_curves import build_break_even_chart, build_cash_curve_chart
from gpuyard.report.figures.sensitivity import (
    build_tornado_chart,
    format_input_name,
    format_input_value,
)
from gpuyard.study.result import CostResult, HorizonResult


def describe_break_even(cost: CostResult) -> str:
    sentence = (
        f"Renting at ${cost.rent_usd_per_hour:.2f}/h costs as much as buying after "
        f"{cost.undiscounted_break_even_hours:,.0f} h ({cost.undiscounted_break_even_years:.2f} years)"
    )
    if cost.speed_lead:
        sentence += (
            f", and as much as its price less the {units.format_share(cost.speed_lead)} speed lead "
            f"after {cost.break_even_hours:,.0f} h ({cost.break_even_years:.2f} years)"
        )
    return f"{sentence}."


def cost_section(cost: CostResult) -> Section:
    sentence = (
        f"Renting at {formats.usd(cost.rent_usd_per_hour)}/h has cost as much as buying for "
        f"{formats.usd(cost.buy_usd)} after {formats.number(cost.undiscounted_break_even_hours)} hours: "
        f"{cost.undiscounted_break_even_years:.1f} years at {formats.number(cost.hours_per_year)} hours "
        "per year."
    )
    if cost.speed_lead > 0:
        sentence += (
            f" By the rule of thumb that takes the {formats.percent(cost.speed_lead)} speed lead of the "
            f"bought machine off its price, it is even after {formats.number(cost.break_even_hours)} hours."
        )
    parts: list[Part] = [Sentence(sentence), _break_even_chart(cost), _cost_figures(cost)]
    if cost.horizon is not None:
        horizon = cost.horizon
        sentence = f"{_describe_horizon(horizon)} {horizon.electricity}".strip()
        parts += [Sentence(sentence), _cash_charts(horizon), _tornado(horizon)]
    return Section("Rent or buy", parts, anchor="cost")


def _cost_figures(cost: CostResult) -> Table:
    facts = [
        ("renting", f"{formats.usd(cost.rent_usd_per_hour)}/h"),
        ("buying", formats.usd(cost.buy_usd)),
        ("use", f"{formats.number(cost.hours_per_year)} h per year"),
        ("renting for a year", formats.usd(cost.rent_usd_per_hour * cost.hours_per_year)),
        (
            "break-even",
            _even(cost.undiscounted_break_even_hours, cost.undiscounted_break_even_years),
        ),
    ]
    if cost.speed_lead > 0:
        facts += [
            ("speed lead of the bought machine", formats.percent(cost.speed_lead)),
            (
                "break-even by the price less the speed lead",
                _even(cost.break_even_hours, cost.break_even_years),
            ),
        ]
    return Table("The figures behind it", ["figure", "value"], facts)


def _even(hours: float, years: float) -> str:
    return f"{formats.number(hours)} h, {years:.2f} years"


def _describe_horizon(horizon: HorizonResult) -> str:
    saves = horizon.saving_usd >= 0
    even = "is never even with renting"
    if horizon.break_even_months is not None:
        even = f"is even with renting after {horizon.break_even_months:.1f} months"
    return (
        f"Over {len(horizon.rented_cash_by_month) - 1} months renting costs "
        f"{formats.usd(sum(horizon.rented_cash_by_month))} and owning, for equal work, "
        f"{formats.usd(sum(horizon.owned_cash_by_month))}: owning {'saves' if saves else 'costs'} "
        f"{formats.usd(abs(horizon.saving_usd))}{'' if saves else ' more'} in today's money, and {even}. "
        f"Prices as given on {horizon.price_date}."
    )


def _tornado(horizon: HorizonResult) -> Table:
    def even(months: float | None) -> str:
        return "never" if months is None else f"{months:.1f} months"

    rows = [
        [
            format_input_name(bar.name),
            format_input_value(bar.name, bar.low),
            format_input_value(bar.name, bar.high),
            formats.usd(bar.saving_at_low_usd),
            formats.usd(bar.saving_at_high_usd),
            even(bar.break_even_at_low_months),
            even(bar.break_even_at_high_months),
        ]
        for bar in horizon.tornado
    ]
    columns = ("input", "from", "to", "saving at the low end", "at the high end",
               "even after, low end", "high end")  # fmt: skip
    title = f"Effect of each input, changed by {formats.percent(horizon.swing)}"
    return Table(title, columns, rows, folded=True)


def _break_even_chart(cost: CostResult) -> Chart:
    return Chart(
        "chart-break-even",
        "Both cost the same where the renting line crosses the buying line; to the right of it, buying "
        "is cheaper. Purchase price only; running costs are in the chart of payments.",
        {ALL_BATCHES: build_break_even_chart(cost)},
    )


def _cash_charts(horizon: HorizonResult) -> Charts:
    """Chart the payments by month, and how much each input matters."""
    cash = {"owning": horizon.owned_cash_by_month, "renting": horizon.rented_cash_by_month}
    months = len(horizon.rented_cash_by_month) - 1
    curve = build_cash_curve_chart(cash, f"month by month, prices as given on {horizon.price_date}")
    decides = build_tornado_chart(horizon.tornado, horizon.saving_usd, months)
    return Charts(
        [
            Chart(
                "chart-cash",
                "Cumulative payments. Owning starts with the price of the hardware. Both cost the same "
                "where the lines cross. A drop in the last month is the resale.",
                {ALL_BATCHES: curve},
            ),
            Chart(
                "chart-tornado",
                f"Each input alone is changed by {100 * horizon.swing:.0f}% either way. If a bar "
                "reverses the saving, verify that input before deciding.",
                {ALL_BATCHES: decides},
            ),
        ]
    )
