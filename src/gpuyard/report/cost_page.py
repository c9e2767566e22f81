"""A standalone page for one question of cost: the answer in words, its charts, and every number."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuyard import __version__
from gpuyard.economics.demand import Demand
from gpuyard.economics.growth import GrowthPlan
from gpuyard.economics.hybrid import Hybrid
from gpuyard.economics.offers import PricedOffer
from gpuyard.economics.rent_or_own import (
    RentOrOwn,
    comparable_cash_by_month,
    rented_cash_by_month,
    saving_usd,
)
from gpuyard.economics.sensitivity import Bar, Spread
from gpuyard.files import write_text
from gpuyard.report.charts import ALL_BATCHES, Chart
from gpuyard.report.figures import (
    Option,
    cash_curve_option,
    duration_curve_option,
    growth_option,
    hours_break_even_option,
    saving_histogram_option,
    tornado_option,
)
from gpuyard.report.page import standalone
from gpuyard.units import format_months


@dataclass(frozen=True)
class NumberTable:
    """The first column names the row, the others are numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class CostPage:
    """What a page says."""

    title: str
    prices: str  # of which day
    sentences: Sequence[str]
    charts: Sequence[Chart]
    tables: Sequence[NumberTable]


def render_cost(page: CostPage) -> str:
    """The whole page."""
    return standalone("cost.html.jinja", list(page.charts), page=page, version=__version__)


def write_cost_page(page: CostPage, path: Path) -> None:
    """One file that opens from disk and loads nothing."""
    write_text(path, render_cost(page))


def rent_or_own_charts(
    case: RentOrOwn, bars: Sequence[Bar], spread: Spread | None = None
) -> list[Chart]:
    """Payments by month, break-even against use, what decides, and how sure it is."""
    cash = {
        "owning": comparable_cash_by_month(case).tolist(),
        "renting": rented_cash_by_month(case).tolist(),
    }
    charts = [
        _chart(
            "cash",
            "All payments so far. Where the lines cross, both cost the same.",
            cash_curve_option(cash, f"month by month over {format_months(case.months)}"),
        ),
        _chart(
            "tornado",
            "Each input alone at both ends of its range, everything else as stated.",
            tornado_option(bars, float(saving_usd(case)), case.months),
        ),
    ]
    if np.any(np.asarray(case.rent_usd_per_hour) > 0):  # a price by the year does not ask for use
        charts.insert(
            1,
            _chart(
                "hours",
                "Right of where a line starts, owning pays off within ten years. Left of it, rent.",
                hours_break_even_option(case),
            ),
        )
    if spread is not None:
        charts.append(
            _chart(
                "spread",
                "All inputs drawn at once, each from a triangular distribution over its range with its "
                "peak at the stated figure.",
                saving_histogram_option(spread),
            )
        )
    return charts


def offers_charts(offers: Sequence[PricedOffer]) -> list[Chart]:
    """Payments by month of every offer."""
    cash = {offer.name: offer.cash_by_month for offer in offers}
    option = cash_curve_option(cash, "month by month, for the same work")
    return [_chart("cash", "All payments so far; a drop in the last month is the resale.", option)]


def hybrid_charts(demand: Demand, hybrid: Hybrid) -> list[Chart]:
    """The duration curve of the demand with what to own of it."""
    caption = "Owned GPUs do what lies below their line; what is above it is rented."
    return [_chart("duration", caption, duration_curve_option(demand, hybrid))]


def growth_charts(plan: GrowthPlan) -> list[Chart]:
    """Demand and owned capacity over time."""
    caption = "Where the demand is above what the owned machines can do, the rest is rented."
    return [_chart("growth", caption, growth_option(plan))]


def _chart(name: str, caption: str, option: Option) -> Chart:
    return Chart(f"chart-{name}", caption, ALL_BATCHES, {ALL_BATCHES: option})
