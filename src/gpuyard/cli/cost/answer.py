"""The answer of `gpuyard cost`: the break-even, the horizon, which input decides, and how sure it is."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard import units
from gpuyard.cli.cost.question import Asked
from gpuyard.cli.options import console, print_json, print_page, print_table
from gpuyard.economics.ownership import (
    loan_payment_usd,
    monthly_parts_usd,
    present_value_usd,
    upfront_usd,
)
from gpuyard.economics.rent_or_own import (
    BreakEven,
    break_even_months,
    comparable_cash_by_month,
    rent_monthly_usd,
    rented_cash_by_month,
    rest_of_term_usd,
    saving_usd,
)
from gpuyard.economics.sensitivity import Bar, Spread, monte_carlo, tornado

if TYPE_CHECKING:
    from gpuyard.report.cost_page import NumberTable


def answer(asked: Asked, html: Path | None, *, json_output: bool) -> None:
    """Print it, and write the page where one is wanted."""
    simple, case = asked.simple, asked.case
    even = float(break_even_months(case))
    wants_bars = asked.tornado or html is not None or json_output
    bars = tornado(case, asked.ranges()) if wants_bars else []
    spread = (
        monte_carlo(case, asked.ranges(), asked.draws, asked.seed)
        if asked.draws is not None
        else None
    )
    if html is not None:
        _write_page(asked, even, bars, spread, html)
    if json_output:
        print_json(_document(asked, simple, even, bars, spread))
        return
    _show_break_even(asked, simple)
    if asked.detailed:
        _show_horizon(asked, even)
    if asked.tornado:
        table = _tornado_table(bars)
        print_table(table.caption, table.columns, table.rows)
    if spread is not None:
        console().print(_spread_sentence(spread), highlight=False, soft_wrap=True)
    console().print(f"{asked.prices}.", highlight=False, markup=False)
    print_page(html)


def _show_break_even(asked: Asked, simple: BreakEven) -> None:
    prices = [("as bought", simple.buy_usd)]
    if simple.comparable_buy_usd != simple.buy_usd:
        prices.append(("discounted by its speed lead", simple.comparable_buy_usd))
    title = f"Renting at {asked.rent.words} against buying"
    if asked.rent.usd_per_year:
        rows = [
            [words, units.format_usd(usd), f"{12 * usd / asked.rent.usd_per_year:.1f} months"]
            for words, usd in prices
        ]
        print_table(title, ["", "buy", "break-even"], rows)
        return
    if asked.rent.date is not None:
        title = f"Renting at {units.format_usd(simple.rent_usd_per_hour)}/h ({asked.rent.words}) against buying"
    print_table(
        title,
        ["", "buy", "break-even", f"at {simple.hours_per_year:,.0f} h a year"],
        [
            [
                words,
                units.format_usd(usd),
                f"{usd / simple.rent_usd_per_hour:,.0f} h",
                f"{usd / simple.rent_usd_per_hour / simple.hours_per_year:.2f} years",
            ]
            for words, usd in prices
        ],
    )


def _show_horizon(asked: Asked, even: float) -> None:
    table = _horizon_table(asked)
    print_table(table.caption, table.columns, table.rows)
    console().print(_horizon_sentence(asked, even), highlight=False, markup=False, soft_wrap=True)


def _horizon_table(asked: Asked) -> "NumberTable":
    from gpuyard.report.cost_page import NumberTable

    case = asked.case
    lead = 1 - asked.speed_lead
    rented, owned = rented_cash_by_month(case), comparable_cash_by_month(case)
    machine = case.running
    once = float(upfront_usd(machine)) * (1 - float(np.asarray(machine.financed_share)))
    rows = [["paid once", units.format_usd(0), units.format_usd(once * lead)]]
    if loan := float(loan_payment_usd(machine)):
        rows.append(["loan a month, while it runs", "", units.format_usd(loan * lead)])
    for name, usd in monthly_parts_usd(machine).items():
        if float(usd) > 0:
            rows.append([f"{name} a month", "", units.format_usd(float(usd) * lead)])
    rows.append(["rent a month", units.format_usd(float(rent_monthly_usd(case))), ""])
    if rest := float(rest_of_term_usd(case)):
        resold = " less resale" if asked.rest == "resell" else ""
        owed = f"{units.format_years(case.rest_years)} of the term after that{resold}"
        rows.append([owed, units.format_usd(rest), ""])
    rows.append(
        [
            "all, less resale",
            units.format_usd(float(rented.sum())),
            units.format_usd(float(owned.sum())),
        ]
    )
    if asked.discount_per_year > 0:
        worth = [
            units.format_usd(float(present_value_usd(cash, asked.discount_per_year)))
            for cash in (rented, owned)
        ]
        rows.append([f"today's worth at {units.format_share(asked.discount_per_year)}", *worth])
    work = "" if lead == 1 else ", for equal work"
    return NumberTable(f"Over {units.format_months(case.months)}{work}", ["", "rent", "own"], rows)


def _horizon_sentence(asked: Asked, even: float) -> str:
    saving = float(saving_usd(asked.case))
    when = f"after {even:.1f} months" if math.isfinite(even) else "never"
    when = when if even > 0 else "from the first month on"
    return (
        f"Owning {'saves' if saving >= 0 else 'costs'} {units.format_usd(abs(saving))}"
        f"{'' if saving >= 0 else ' more'}; it is even with renting {when}."
    )


def _tornado_table(bars: list[Bar]) -> "NumberTable":
    from gpuyard.report.cost_page import NumberTable
    from gpuyard.report.figures import input_name, input_value

    def months(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f} months"

    return NumberTable(
        "What decides it, the widest first",
        ["input", "from", "to", "saving at low", "saving at high", "even at low", "even at high"],
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
    )


def _spread_sentence(spread: Spread) -> str:
    low, middle, high = (units.format_usd(usd) for usd in spread.saving_usd)
    return (
        f"Owning is cheaper in {100 * spread.owning_is_cheaper:.1f} % of {spread.draws:,} draws "
        f"(seed {spread.seed}); it saves {middle} in the middle, {low} to {high} in 90 %."
    )


def _document(
    asked: Asked, simple: BreakEven, even: float, bars: list[Bar], spread: Spread | None
) -> dict[str, Any]:
    case = asked.case
    rented, owned = rented_cash_by_month(case), comparable_cash_by_month(case)
    years: float | None = simple.break_even_years
    if asked.detailed:
        years = even / 12 if math.isfinite(even) else None
    return {
        "rent_usd_per_hour": simple.rent_usd_per_hour,
        "buy_usd": simple.buy_usd,
        "speed_lead": simple.speed_lead,
        "comparable_buy_usd": simple.comparable_buy_usd,
        "hours_per_year": simple.hours_per_year,
        "break_even_hours": (
            simple.break_even_hours
            if not asked.detailed
            else None
            if years is None
            else years * simple.hours_per_year
        ),
        "break_even_years": years,
        "break_even_months": None if years is None else years * 12,
        "price_date": (asked.rent.date or asked.given_on).isoformat(),
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
        "monte_carlo": None if spread is None else _spread_document(spread),
    }


def _spread_document(spread: Spread) -> dict[str, Any]:
    document = asdict(spread)
    document["break_even_months"] = [
        months if math.isfinite(months) else None for months in spread.break_even_months
    ]
    return document


def _write_page(
    asked: Asked, even: float, bars: list[Bar], spread: Spread | None, path: Path
) -> None:
    from gpuyard.report.cost_page import (
        CostPage,
        NumberTable,
        rent_or_own_charts,
        write_cost_page,
    )
    from gpuyard.report.figures import hours_break_even_rows

    case = asked.case
    cash = zip(rented_cash_by_month(case), comparable_cash_by_month(case), strict=True)
    sentences = [_horizon_sentence(asked, even)]
    if spread is not None:
        sentences.append(_spread_sentence(spread))
    page = CostPage(
        title=f"Rent at {asked.rent.words} or buy at {units.format_usd(asked.simple.buy_usd)}",
        prices=asked.prices,
        sentences=sentences,
        charts=rent_or_own_charts(case, bars, spread),
        tables=[
            _horizon_table(asked),
            _tornado_table(bars),
            NumberTable(
                "Months until renting has cost as much, by hours of use a year",
                ["hours a year", "rent 30 % cheaper", "as stated", "30 % dearer"],
                hours_break_even_rows(case),
            ),
            NumberTable(
                "Payments by month",
                ["month", "rent", "own"],
                [
                    [str(month), units.format_usd(float(rented)), units.format_usd(float(owned))]
                    for month, (rented, owned) in enumerate(cash)
                ],
            ),
        ],
    )
    write_cost_page(page, path)
