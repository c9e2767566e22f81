"""Of a study, whether to rent or to buy."""

from gpuyard import units
from gpuyard.report import formats
from gpuyard.report.answer import ALL_BATCHES, Chart, Charts, Part, Section, Sentence, Table
from gpuyard.report.figures.cost_curves import break_even_option, cash_curve_option
from gpuyard.report.figures.sensitivity import input_name, input_value, tornado_option
from gpuyard.study.result import CostResult, HorizonResult


def break_even_words(cost: CostResult) -> str:
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
        said = " ".join(words for words in (_horizon_words(horizon), horizon.electricity) if words)
        parts += [Sentence(said), _cash_charts(horizon), _tornado(horizon)]
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


def _horizon_words(horizon: HorizonResult) -> str:
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
            input_name(bar.name),
            input_value(bar.name, bar.low),
            input_value(bar.name, bar.high),
            formats.usd(bar.saving_at_low_usd),
            formats.usd(bar.saving_at_high_usd),
            even(bar.break_even_at_low_months),
            even(bar.break_even_at_high_months),
        ]
        for bar in horizon.tornado
    ]
    columns = ("input", "from", "to", "saving at the low end", "at the high end",
               "even after, low end", "high end")  # fmt: skip
    title = f"What each input does, moved by {formats.percent(horizon.swing)}"
    return Table(title, columns, rows, folded=True)


def _break_even_chart(cost: CostResult) -> Chart:
    """Renting against buying."""
    return Chart(
        "chart-break-even",
        "Where the renting line crosses that of buying, both cost the same; right of it, buying is "
        "cheaper. Purchase price only; running costs are in the chart of payments.",
        {ALL_BATCHES: break_even_option(cost)},
    )


def _cash_charts(horizon: HorizonResult) -> Charts:
    """Payments by month, and what decides the comparison."""
    cash = {"owning": horizon.owned_cash_by_month, "renting": horizon.rented_cash_by_month}
    months = len(horizon.rented_cash_by_month) - 1
    curve = cash_curve_option(cash, f"month by month, prices as given on {horizon.price_date}")
    decides = tornado_option(horizon.tornado, horizon.saving_usd, months)
    return Charts(
        [
            Chart(
                "chart-cash",
                "All payments so far. Owning starts with the price of the hardware; where the lines "
                "cross, both cost the same. A drop in the last month is the resale.",
                {ALL_BATCHES: curve},
            ),
            Chart(
                "chart-tornado",
                f"Each input alone is moved by {100 * horizon.swing:.0f} % either way. If a bar "
                "reverses the saving, pin that figure down before deciding.",
                {ALL_BATCHES: decides},
            ),
        ]
    )
