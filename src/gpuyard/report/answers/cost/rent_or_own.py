"""Renting against owning: the break-even, the horizon, which input matters most, and how sure it is."""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpuyard import units
from gpuyard.economics.billing import RentPrice
from gpuyard.economics.ownership import (
    loan_payment_usd,
    monthly_parts_usd,
    present_value_usd,
    upfront_usd,
)
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
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    Only,
    Option,
    Part,
    Sentence,
    Table,
)
from gpuyard.report.figures.cost_curves import (
    cash_curve_option,
    hours_break_even_option,
    hours_break_even_rows,
)
from gpuyard.report.figures.sensitivity import (
    input_name,
    input_value,
    saving_histogram_option,
    tornado_option,
)


@dataclass(frozen=True)
class RentOrOwnQuestion:
    """What is compared, and how much is wanted about it."""

    rent: RentPrice
    case: RentOrOwn
    ranges: Mapping[str, tuple[float, float]]
    given_on: datetime.date
    detailed: bool = False  # more than the purchase alone
    tornado: bool = False
    draws: int | None = None
    seed: int = 0
    electricity: str = ""  # which price is used; empty where no power is counted

    @cached_property
    def simple(self) -> BreakEven:
        """The purchase alone against the rent."""
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
    def prices(self) -> str:
        """Of which day the prices are."""
        if self.rent.date is None:
            return f"Prices as given on {self.given_on}"
        return f"Rent of {self.rent.words} on {self.rent.date}, other prices as given on {self.given_on}"


def rent_or_own_answer(question: RentOrOwnQuestion) -> Answer:
    """A page has everything, a terminal what was asked for."""
    case = question.case
    simple = question.simple  # before anything else: it says which of its inputs can't be
    bars = tornado(case, question.ranges)
    spread = (
        monte_carlo(case, question.ranges, question.draws, question.seed)
        if question.draws is not None
        else None
    )
    horizon, horizon_sentence = _horizon_table(question), Sentence(_horizon_words(question))
    drawn = [Sentence(_spread_words(spread))] if spread is not None else []
    short: list[Part] = [_break_even_table(question, simple)]
    if simple.speed_lead > 0:
        short.append(Sentence(_speed_lead_words(simple)))
    if question.detailed:
        short += [horizon, horizon_sentence]
    if question.tornado:
        short.append(_tornado_table(bars))
    full: list[Part] = [
        horizon_sentence,
        *drawn,
        Charts(rent_or_own_charts(case, bars, spread)),
        horizon,
        _tornado_table(bars),
        Table(
            "Months until renting has cost as much, by hours of use per year",
            ["hours per year", "rent 30 % cheaper", "as stated", "30 % dearer"],
            hours_break_even_rows(case),
        ),
        _payments_table(case),
    ]
    return Answer(
        [
            Only("terminal", [*short, *drawn, Sentence(f"{question.prices}.")]),
            Only("page", full),
            *([Sentence(question.electricity)] if question.electricity else []),
        ],
        _document(question, bars, spread),
        title=f"Rent at {question.rent.words} or buy at {units.format_usd(simple.buy_usd)}",
        verb="cost",
        meta=question.prices,
    )


def rent_or_own_charts(
    case: RentOrOwn, bars: Sequence[TornadoBar], spread: SavingSpread | None = None
) -> list[Chart]:
    """Payments by month, break-even against use, what matters most, and how sure it is."""
    cash = {
        "owning": paid_by_month(case).tolist(),
        "renting": rented_cash_by_month(case).tolist(),
    }
    charts = [
        _chart(
            "cash",
            "All payments so far. Where the lines cross, both cost the same.",
            cash_curve_option(cash, f"month by month over {units.format_months(case.months)}"),
        )
    ]
    if np.any(np.asarray(case.rent_usd_per_hour) > 0):  # a price by the year does not ask for use
        caption = (
            "Right of where a line starts, owning pays off within ten years. Left of it, rent."
        )
        charts.append(_chart("hours", caption, hours_break_even_option(case)))
    caption = "Each input alone at both ends of its range, everything else as stated."
    stated = float(saving_usd(case))
    charts.append(_chart("tornado", caption, tornado_option(bars, stated, case.months)))
    if spread is not None:
        caption = "All inputs drawn at once, each from a triangular distribution over its range with its peak at the stated figure."
        charts.append(_chart("spread", caption, saving_histogram_option(spread)))
    return charts


def _chart(name: str, caption: str, option: Option) -> Chart:
    return Chart(f"chart-{name}", caption, {ALL_BATCHES: option})


def _break_even_table(question: RentOrOwnQuestion, simple: BreakEven) -> Table:
    paid = units.format_usd(simple.buy_usd)
    prices = [("purchase price", paid, simple.buy_usd)]
    if simple.speed_lead > 0:  # hours alone: nobody pays a price less a speed lead
        less = f"less its {units.format_share(simple.speed_lead)} speed lead"
        prices.append((less, "", simple.comparable_buy_usd))
    rent = question.rent
    if rent.usd_per_year:
        return Table(
            f"Renting at {rent.words} against buying",
            ["", "buy", "break-even"],
            [
                [words, shown, f"{12 * usd / rent.usd_per_year:.1f} months"]
                for words, shown, usd in prices
            ],
        )
    words = rent.words
    if rent.date is not None:
        words = f"{units.format_usd(simple.rent_usd_per_hour)}/h ({rent.words})"
    return Table(
        f"Renting at {words} against buying",
        ["", "buy", "break-even", f"at {simple.hours_per_year:,.0f} h a year"],
        [
            [
                words,
                shown,
                f"{usd / simple.rent_usd_per_hour:,.0f} h",
                f"{usd / simple.rent_usd_per_hour / simple.hours_per_year:.2f} years",
            ]
            for words, shown, usd in prices
        ],
    )


def _speed_lead_words(simple: BreakEven) -> str:
    lead, paid = units.format_share(simple.speed_lead), units.format_usd(simple.buy_usd)
    return f"The price less {lead} is a rule of thumb for the hours; what is paid is {paid}."


def _horizon_table(question: RentOrOwnQuestion) -> Table:
    case, machine = question.case, question.case.running
    discount = float(np.asarray(case.discount_per_year))
    rented, owned = rented_cash_by_month(case), paid_by_month(case)
    once = float(upfront_usd(machine)) * (1 - float(np.asarray(machine.financed_share)))
    rows = [["up front", units.format_usd(0), units.format_usd(once)]]
    if loan := float(loan_payment_usd(machine)):
        rows.append(["loan payment per month", "", units.format_usd(loan)])
    for name, usd in monthly_parts_usd(machine).items():
        if float(usd) > 0:
            rows.append([f"{name} per month", "", units.format_usd(float(usd))])
    rows.append(["rent per month", units.format_usd(float(rent_monthly_usd(case))), ""])
    if rest := float(rest_of_term_usd(case)):
        resold = " less resale" if float(np.asarray(case.rest_resold)) > 0 else ""
        owed = f"{units.format_years(case.rest_years)} of the term after that{resold}"
        rows.append([owed, units.format_usd(rest), ""])
    totals = [units.format_usd(float(cash.sum())) for cash in (rented, owned)]
    rows.append(["total, less resale", *totals])
    if discount > 0:
        worth = [
            units.format_usd(float(present_value_usd(cash, discount))) for cash in (rented, owned)
        ]
        rows.append([f"present value at {units.format_share(discount)}", *worth])
    work = ", for equal work" if np.any(np.asarray(case.speed_lead) > 0) else ""
    return Table(f"Over {units.format_months(case.months)}{work}", ["", "rent", "own"], rows)


def _horizon_words(question: RentOrOwnQuestion) -> str:
    saving, months = float(saving_usd(question.case)), question.months_until_even
    when = (
        f"breaks even after {months:.1f} months" if math.isfinite(months) else "never breaks even"
    )
    when = when if months > 0 else "is cheaper from the first month on"
    return (
        f"Owning {'saves' if saving >= 0 else 'costs'} {units.format_usd(abs(saving))}"
        f"{'' if saving >= 0 else ' more'} over {units.format_months(question.case.months)}; it {when}."
    )


def _tornado_table(bars: list[TornadoBar]) -> Table:
    def months(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f}"

    return Table(
        "What matters most, the widest first",
        ["input", "from", "to", "saving at low", "saving at high",
         Column("months to even, low", 1), Column("months to even, high", 2)],
        [
            [
                input_name(bar.name),
                input_value(bar.name, bar.low),
                input_value(bar.name, bar.high),
                units.format_usd(bar.saving_at_low_usd),
                units.format_usd(bar.saving_at_high_usd),
                months(bar.break_even_at_low_months),
                months(bar.break_even_at_high_months),
            ]
            for bar in bars
        ],
    )  # fmt: skip


def _payments_table(case: RentOrOwn) -> Table:
    cash = zip(rented_cash_by_month(case), paid_by_month(case), strict=True)
    rows = [
        [str(month), units.format_usd(float(rented)), units.format_usd(float(owned))]
        for month, (rented, owned) in enumerate(cash)
    ]
    return Table("Payments by month", ["month", "rent", "own"], rows)


def _spread_words(spread: SavingSpread) -> str:
    low, middle, high = (units.format_usd(usd) for usd in spread.saving_usd)
    return (
        f"Owning is cheaper in {100 * spread.owning_is_cheaper:.1f} % of {spread.draws:,} draws "
        f"(seed {spread.seed}); it saves {middle} at the median, {low} to {high} in 90 % of them."
    )


def _document(
    question: RentOrOwnQuestion, bars: list[TornadoBar], spread: SavingSpread | None
) -> dict[str, Any]:
    case, simple = question.case, question.simple
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
        "speed_lead": simple.speed_lead,
        "comparable_buy_usd": simple.comparable_buy_usd,
        "hours_per_year": simple.hours_per_year,
        "break_even_hours": hours,
        "break_even_years": years,
        "break_even_months": None if years is None else years * 12,
        "payments_even_months": even,
        "price_date": (question.rent.date or question.given_on).isoformat(),
        "electricity": question.electricity or None,
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
