"""Builds the sensitivity charts of a saving: a tornado of single inputs, and a histogram of random draws."""

from collections.abc import Sequence

from gpuyard.draw.palette import COLORS
from gpuyard.economics.sensitivity import SavingSpread, TornadoBar
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_bar_axis,
    build_frame,
    build_value_axis,
    build_x_axis,
)
from gpuyard.units import format_months, format_share, format_usd

_LOW, _HIGH = COLORS[0], COLORS[1]
_MAX_BARS = 12
_NAMES = {
    "rent_usd_per_hour": "rent per hour",
    "reserved_usd_per_year": "reserved price per year",
    "rent_extras_usd_per_month": "storage and egress per month",
    "hours_per_year": "hours of use per year",
    "hardware_usd": "price of the hardware",
    "usd_per_kwh": "electricity per kWh",
    "watts": "power under load, W",
    "pue": "PUE",
    "colocation_usd_per_year": "colocation per year",
    "colocation_usd_per_kw_month": "colocation per kW and month",
    "value_kept_per_year": "value kept per year",
    "discount_per_year": "discount rate",
    "rest_resold": "resale of the remaining term",
    "interest_per_year": "interest",
    "usd_per_failure": "repair of a failure",
    "gpu_hours_per_failure": "GPU-hours per failure",
    "staff_usd_per_hour": "staff per hour",
}


def format_input_name(name: str) -> str:
    """Return the name of an input for charts and tables."""
    return _NAMES.get(name, name.replace("_usd", "").replace("_", " "))


def format_input_value(name: str, value: float) -> str:
    """Format the value of an input in its usual unit."""
    if "usd" in name:
        if value >= 1:
            return format_usd(value)
        return "$" + max(f"{value:.2f}", f"{value:.3g}", key=len)  # $0.80, but $0.128 per kWh
    if name.endswith("share") or name in {
        "value_kept_per_year", "discount_per_year", "interest_per_year", "speed_lead",
        "support_share_per_year", "rest_resold",
    }:  # fmt: skip
        return format_share(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def build_tornado_chart(bars: Sequence[TornadoBar], saving_usd: float, months: int) -> ChartOptions:
    """Build the chart of how each input changes the saving; the widest bar is first."""
    bars = bars[:_MAX_BARS]
    verb = "saves" if saving_usd >= 0 else "costs"
    option = build_frame(
        "Which inputs matter most",
        f"as stated, owning {verb} {format_usd(abs(saving_usd))}"
        f"{'' if saving_usd >= 0 else ' more'} over {format_months(months)}; one input at a time",
        "Change of the saving when one input moves to either end of its range. "
        + " ".join(_describe(bar, saving_usd) for bar in bars),
        [{"name": "input at its low end"}, {"name": "input at its high end"}],
    )
    option["tooltip"] = {"trigger": "item", "confine": True}
    option["grid"] |= {"top": 58, "right": 24}
    option["xAxis"] = build_x_axis(
        "change of the saving, $", axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True}
    )
    option["yAxis"] = build_bar_axis(_format_label(bar) for bar in bars) | {
        "axisLine": {"onZero": False}
    }
    option["series"] = [
        {
            "name": f"input at its {end} end",
            "type": "bar",
            "stack": "input",
            "barMaxWidth": 22,
            "itemStyle": {"color": color},
            "data": [_build_piece(bar, end, saving_usd) for bar in bars],
        }
        for end, color in (("low", _LOW), ("high", _HIGH))
    ]
    return option


def _format_label(bar: TornadoBar) -> str:
    return f"{format_input_name(bar.name)}\n{format_input_value(bar.name, bar.low)} to {format_input_value(bar.name, bar.high)}"


def _build_piece(bar: TornadoBar, end: str, base_usd: float) -> ChartOptions:
    value, usd = (
        (bar.low, bar.saving_at_low_usd) if end == "low" else (bar.high, bar.saving_at_high_usd)
    )
    text = f"{format_input_name(bar.name)} {format_input_value(bar.name, value)}: owning saves {format_usd(usd)}"
    return {"value": usd - base_usd, "tooltip": {"formatter": text}}


def _describe(bar: TornadoBar, base_usd: float) -> str:
    low, high = (
        format_usd(usd - base_usd) for usd in (bar.saving_at_low_usd, bar.saving_at_high_usd)
    )
    return f"{format_input_name(bar.name)}: {low} to {high}."


def build_saving_histogram(spread: SavingSpread) -> ChartOptions:
    """Build the histogram of the saving; in draws left of zero, renting is cheaper."""
    middles = [
        (low + high) / 2
        for low, high in zip(spread.edges_usd[:-1], spread.edges_usd[1:], strict=True)
    ]
    series = []
    for name, color, owning in (
        ("renting is cheaper", COLORS[1], False),
        ("owning is cheaper", COLORS[2], True),
    ):
        series.append(
            {
                "name": name,
                "type": "bar",
                "stack": "draws",
                "barCategoryGap": "4%",
                "itemStyle": {"color": color},
                "data": [
                    count / spread.draws * 100 if (middle > 0) == owning else 0
                    for middle, count in zip(middles, spread.counts, strict=True)
                ],
            }
        )
    low, middle, high = spread.saving_usd
    option = build_frame(
        "How certain the saving is",
        f"owning is cheaper in {format_share(spread.owning_is_cheaper)} of {spread.draws:,} draws",
        f"Half of the draws save more than {format_usd(middle)}; 90% are between {format_usd(low)} "
        f"and {format_usd(high)}.",
        series,
    )
    option["xAxis"] = build_x_axis(
        "saving of owning, $",
        type="category",
        data=[format_usd(round(middle)) for middle in middles],
        axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True},
    )
    option["yAxis"] = build_value_axis("% of the draws")
    option["series"] = series
    return option
