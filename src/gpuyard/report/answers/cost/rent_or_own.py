"""The answer of `gpuyard cost`: the break-even of renting and owning, its sensitivity, and its uncertainty."""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpuyard import units
from gpuyard.catalog import prices
from gpuyard.catalog.prices import newest_date
from gpuyard.economics.billing import RentPrice
from gpuyard.economics.ownership import (
    loan_payment_usd,
    monthly_parts_usd,
    present_value_usd,
    upfront_usd,
)
from gpuyard.economics.purchase import OLD_YEARS, Purchase, describe_age
from gpuyard.economics.rent_or_own import (
    BreakEven,
    RentOrOwn,
    break_even,
    break_even_months,
    paid_by_month,
    rent_monthly_usd,
    rented_cash_by_month,
    rest_of_term_usd,
    saving_usd,
)
from gpuyard.economics.sensitivity import SavingSpread, TornadoBar, monte_carlo, tornado
from gpuyard.planner.goodput import InstanceLosses
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    ChartOptions,
    Charts,
    Column,
    Part,
    RendererOnly,
    Sentence,
    Table,
)


@dataclass(frozen=True)
class RentOrOwnQuestion:
    """The case to compare, and the details to show."""

    rent: RentPrice
    purchase: Purchase
    case: RentOrOwn
    ranges: Mapping[str, tuple[float, float]]
    given_on: datetime.date
    detailed: bool = False  # more than the purchase price alone
    tornado: bool = False
    draws: int | None = None
    seed: int = 0
    electricity: str = ""  # the price in use; empty if electricity is not counted
    losses: InstanceLosses | None = None  # known for a catalog instance

    @cached_property
    def simple(self) -> BreakEven:
        """The break-even of the purchase price alone."""
        hours = float(np.asarray(self.case.hours_per_year))
        hourly = self.rent.usd_per_hour
        if self.rent.usd_per_year and hours > 0:
            hourly = self.rent.usd_per_year / hours
        hardware_usd = float(np.asarray(self.case.owned.hardware_usd))
        return break_even(hourly, hardware_usd, hours, float(np.asarray(self.case.speed_lead)))

    @cached_property
    def months_until_even(self) -> float:
        return float(break_even_months(self.case))

    @property
    def price_basis(self) -> str:
        """The old or estimated prices that the answer rests on; empty if there are none."""
        newest = newest_date(prices())
        reasons = [self.purchase.describe_basis(newest)]
        date = self.rent.date
        if date is not None and (newest - date).days / 365.25 > OLD_YEARS:
            instance = self.rent.text.partition("@")[0]
            reasons.append(f"the rent of {instance}{describe_age(date, newest)}")
        text = "; ".join(filter(None, reasons))
        return f"This rests on {text}." if text else ""

    @property
    def saving_range(self) -> tuple[float, float] | None:
        """The saving at the highest and at the lowest price of the hardware; None if the price is not a range."""
        if not self.purchase.is_range:
            return None
        prices = np.array([self.purchase.usd_high, self.purchase.usd_low])
        low, high = saving_usd(self.case.with_inputs({"hardware_usd": prices})).tolist()
        return low, high

    @property
    def prices(self) -> str:
        """The dates of the prices."""
        if self.rent.date is None:
            return f"Prices as given on {self.given_on}"
        return f"Rent of {self.rent.text} on {self.rent.date}, other prices as given on {self.given_on}"


def rent_or_own_answer(question: RentOrOwnQuestion, *, page: bool = True) -> Answer:
    """Show the requested details on the terminal, and everything on a page if there is one."""
    case = question.case
    simple = question.simple  # first, because it checks its inputs
    bars = tornado(case, question.ranges)
    spread = (
        monte_carlo(case, question.ranges, question.draws, question.seed)
        if question.draws is not None
        else None
    )
    horizon, saving = _create_horizon_table(question), Sentence(_describe_saving(question))
    uncertainty = [Sentence(_describe_spread(spread))] if spread is not None else []
    basis = [Sentence(question.price_basis, "caution")] if question.price_basis else []
    first = saving if question.detailed else Sentence(_describe_break_even(question, simple))
    terminal: list[Part] = [*basis, first, _create_break_even_table(question, simple)]
    if simple.speed_lead > 0:
        terminal.append(Sentence(_describe_speed_lead(simple)))
    if question.detailed:
        terminal.append(horizon)
    if question.tornado:
        terminal.append(_create_tornado_table(bars))
    page_parts: list[Part] = []
    if page:
        from gpuyard.report.figures.cost_curves import build_hours_break_even_rows

        page_parts = [
            *basis,
            saving,
            *uncertainty,
            Charts(create_rent_or_own_charts(case, bars, spread)),
            horizon,
            _create_tornado_table(bars),
            Table(
                "Months to break-even, by hours of use per year",
                ["hours per year", "rent 30% cheaper", "as stated", "rent 30% higher"],
                build_hours_break_even_rows(case),
            ),
            _create_payments_table(case),
        ]
    return Answer(
        [
            RendererOnly("terminal", [*terminal, *uncertainty, Sentence(f"{question.prices}.")]),
            RendererOnly("page", page_parts),
            *([Sentence(question.electricity)] if question.electricity else []),
            *([Sentence(_describe_losses(question.losses))] if question.losses else []),
        ],
        _create_document(question, bars, spread),
        title=f"Rent at {question.rent.text} or buy at {units.format_usd(simple.buy_usd)}",
        verb="cost",
        meta=question.prices,
    )


def _describe_losses(losses: InstanceLosses) -> str:
    gpus = units.format_count(losses.gpus, "GPU")
    sentence = f"A job on its {gpus} makes progress in {losses.goodput.share:.1%} of the hours."
    if losses.spot is None or losses.spot_usd_per_useful_hour is None:
        return sentence
    hourly = units.format_usd(losses.spot_usd_per_useful_hour)
    return (
        f"{sentence} On spot, it is {losses.spot.share:.1%}, and an hour of progress costs {hourly} "
        f"({losses.spot.mean_time.basis})."
    )


def create_rent_or_own_charts(
    case: RentOrOwn, bars: Sequence[TornadoBar], spread: SavingSpread | None = None
) -> list[Chart]:
    """Chart payments by month, the break-even against use, the sensitivity, and the uncertainty."""
    from gpuyard.report.figures.cost_curves import (
        build_cash_curve_chart,
        build_hours_break_even_chart,
    )
    from gpuyard.report.figures.sensitivity import build_saving_histogram, build_tornado_chart

    cash = {
        "owning": paid_by_month(case).tolist(),
        "renting": rented_cash_by_month(case).tolist(),
    }
    charts = [
        _create_chart(
            "cash",
            "Cumulative payments. Both cost the same where the lines cross.",
            build_cash_curve_chart(cash, f"month by month over {units.format_months(case.months)}"),
        )
    ]
    if np.any(np.asarray(case.rent_usd_per_hour) > 0):  # a yearly price does not depend on use
        caption = (
            "Owning pays off within ten years to the right of a line's start. To the left, rent."
        )
        charts.append(_create_chart("hours", caption, build_hours_break_even_chart(case)))
    caption = "Each input alone at both ends of its range, everything else as stated."
    stated = float(saving_usd(case))
    charts.append(_create_chart("tornado", caption, build_tornado_chart(bars, stated, case.months)))
    if spread is not None:
        caption = "All inputs are drawn at once from triangular distributions with their peaks at the stated values."
        charts.append(_create_chart("spread", caption, build_saving_histogram(spread)))
    return charts


def _create_chart(name: str, caption: str, option: ChartOptions) -> Chart:
    return Chart(f"chart-{name}", caption, {ALL_BATCHES: option})


def _create_break_even_table(question: RentOrOwnQuestion, simple: BreakEven) -> Table:
    paid = units.format_usd(simple.buy_usd)
    prices = [("purchase price", paid, simple.buy_usd)]
    if question.purchase.is_range:
        ends = (("low", question.purchase.usd_low), ("high", question.purchase.usd_high))
        prices += [(f"at the {end} end", units.format_usd(usd), usd) for end, usd in ends]
    if simple.speed_lead > 0:  # this reduces the hours, not the price that is paid
        reduced = f"less its {units.format_share(simple.speed_lead)} speed lead"
        prices.append((reduced, "", simple.comparable_buy_usd))
    rent = question.rent
    if rent.usd_per_year:
        return Table(
            f"Renting at {rent.text} against buying",
            ["", "buy", "break-even"],
            [
                [name, price, f"{12 * usd / rent.usd_per_year:.1f} months"]
                for name, price, usd in prices
            ],
        )
    rate = rent.text
    if rent.date is not None:
        rate = f"{units.format_usd(simple.rent_usd_per_hour)}/h ({rent.text})"
    lines = [
        [
            name,
            price,
            f"{usd / simple.rent_usd_per_hour:,.0f} h",
            f"{usd / simple.rent_usd_per_hour / simple.hours_per_year:.2f} years",
        ]
        for name, price, usd in prices
    ]
    if question.detailed and not simple.speed_lead:
        years = question.months_until_even / 12
        hours = years * simple.hours_per_year
        even = [f"{hours:,.0f} h", f"{years:.2f} years"] if math.isfinite(years) else ["never", ""]
        lines.append(["with all costs", "", *even])
    return Table(
        f"Renting at {rate} against buying",
        ["", "buy", "break-even", f"at {simple.hours_per_year:,.0f} h per year"],
        lines,
    )


def _describe_break_even(question: RentOrOwnQuestion, simple: BreakEven) -> str:
    paid = units.format_usd(simple.buy_usd)
    if yearly := question.rent.usd_per_year:
        return f"Buying for {paid} pays off after {12 * simple.comparable_buy_usd / yearly:.1f} months."
    return (
        f"Buying for {paid} pays off after {simple.break_even_hours:,.0f} h of use: "
        f"{simple.break_even_years:.2f} years at {simple.hours_per_year:,.0f} h per year."
    )


def _describe_speed_lead(simple: BreakEven) -> str:
    lead, paid = units.format_share(simple.speed_lead), units.format_usd(simple.buy_usd)
    return f"The price less {lead} is a rule of thumb for the hours; the price you pay is {paid}."


def _create_horizon_table(question: RentOrOwnQuestion) -> Table:
    case, machine = question.case, question.case.running
    discount = float(np.asarray(case.discount_per_year))
    rented, owned = rented_cash_by_month(case), paid_by_month(case)
    upfront = float(upfront_usd(machine)) * (1 - float(np.asarray(machine.financed_share)))
    rows = [["up front", units.format_usd(0), units.format_usd(upfront)]]
    if loan := float(loan_payment_usd(machine)):
        rows.append(["loan payment per month", "", units.format_usd(loan)])
    for name, usd in monthly_parts_usd(machine).items():
        if float(usd) > 0:
            rows.append([f"{name} per month", "", units.format_usd(float(usd))])
    rows.append(["rent per month", units.format_usd(float(rent_monthly_usd(case))), ""])
    if rest := float(rest_of_term_usd(case)):
        resold = " less resale" if float(np.asarray(case.rest_resold)) > 0 else ""
        after = f"{units.format_years(case.rest_years)} of the term after that{resold}"
        rows.append([after, units.format_usd(rest), ""])
    totals = [units.format_usd(float(cash.sum())) for cash in (rented, owned)]
    rows.append(["total, less resale", *totals])
    if discount > 0:
        values = [
            units.format_usd(float(present_value_usd(cash, discount))) for cash in (rented, owned)
        ]
        rows.append([f"present value at {units.format_share(discount)}", *values])
    work = ", for equal work" if np.any(np.asarray(case.speed_lead) > 0) else ""
    return Table(f"Over {units.format_months(case.months)}{work}", ["", "rent", "own"], rows)


def _describe_saving(question: RentOrOwnQuestion) -> str:
    saving, months = float(saving_usd(question.case)), question.months_until_even
    when = (
        f"breaks even after {months:.1f} months" if math.isfinite(months) else "never breaks even"
    )
    when = when if months > 0 else "is cheaper from the first month"
    return (
        f"Owning {'saves' if saving >= 0 else 'costs'} {units.format_usd(abs(saving))}"
        f"{'' if saving >= 0 else ' more'} over {units.format_months(question.case.months)}"
        f"{_describe_saving_range(question)}; it {when}."
    )


def _describe_saving_range(question: RentOrOwnQuestion) -> str:
    if question.saving_range is None:
        return ""
    low, high = map(units.format_usd, question.saving_range)
    return f" ({low} to {high} over the range of its price)"


def _create_tornado_table(bars: list[TornadoBar]) -> Table:
    from gpuyard.report.figures.sensitivity import format_input_name, format_input_value

    def format_months(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f}"

    return Table(
        "Inputs by their effect on the saving, largest first",
        ["input", "from", "to", "saving at low", "saving at high",
         Column("break-even months, low", 1), Column("break-even months, high", 2)],
        [
            [
                format_input_name(bar.name),
                format_input_value(bar.name, bar.low),
                format_input_value(bar.name, bar.high),
                units.format_usd(bar.saving_at_low_usd),
                units.format_usd(bar.saving_at_high_usd),
                format_months(bar.break_even_at_low_months),
                format_months(bar.break_even_at_high_months),
            ]
            for bar in bars
        ],
    )  # fmt: skip


def _create_payments_table(case: RentOrOwn) -> Table:
    cash = zip(rented_cash_by_month(case), paid_by_month(case), strict=True)
    rows = [
        [str(month), units.format_usd(float(rented)), units.format_usd(float(owned))]
        for month, (rented, owned) in enumerate(cash)
    ]
    return Table("Payments by month", ["month", "rent", "own"], rows, folded=True)


def _describe_spread(spread: SavingSpread) -> str:
    low, median, high = (units.format_usd(usd) for usd in spread.saving_usd)
    return (
        f"Owning is cheaper in {100 * spread.owning_is_cheaper:.1f}% of {spread.draws:,} draws "
        f"(seed {spread.seed}); it saves {median} at the median, and {low} to {high} in 90% of them."
    )


def _create_document(
    question: RentOrOwnQuestion, bars: list[TornadoBar], spread: SavingSpread | None
) -> dict[str, Any]:
    case, simple, losses = question.case, question.simple, question.losses
    rented, owned = rented_cash_by_month(case), paid_by_month(case)
    hours: float | None = simple.break_even_hours
    years: float | None = simple.break_even_years
    even = question.months_until_even if math.isfinite(question.months_until_even) else None
    if question.detailed:
        years = None if even is None else even / 12 * (1 - simple.speed_lead)
        hours = None if years is None else years * simple.hours_per_year
    return {
        "rent_usd_per_hour": simple.rent_usd_per_hour,
        "buy_usd": simple.buy_usd,
        "buy_usd_range": [question.purchase.usd_low, question.purchase.usd_high],
        "saving_usd_range": question.saving_range,
        "price_basis": question.price_basis or None,
        "speed_lead": simple.speed_lead,
        "comparable_buy_usd": simple.comparable_buy_usd,
        "hours_per_year": simple.hours_per_year,
        "break_even_hours": hours,
        "break_even_years": years,
        "break_even_months": None if years is None else years * 12,
        "payments_even_months": even,
        "price_date": (question.rent.date or question.given_on).isoformat(),
        "electricity": question.electricity or None,
        "goodput": losses and losses.goodput.share,
        "spot_goodput": losses and losses.spot and losses.spot.share,
        "spot_usd_per_useful_hour": losses and losses.spot_usd_per_useful_hour,
        "horizon_months": case.months,
        "upfront_usd": float(upfront_usd(case.running)),
        "monthly_usd": {n: float(usd) for n, usd in monthly_parts_usd(case.running).items()},
        "rest_of_term_usd": float(rest_of_term_usd(case)),
        "rented_usd": float(rented.sum()),
        "owned_usd": float(owned.sum()),
        "saving_present_value_usd": float(saving_usd(case)),
        "rented_cash_by_month_usd": rented.tolist(),
        "owned_cash_by_month_usd": owned.tolist(),
        "tornado": [asdict(bar) for bar in bars],
        "monte_carlo": None if spread is None else asdict(spread),
    }
