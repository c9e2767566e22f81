"""How far the saving depends on uncertain inputs: what each alone does to it, the widest bar first, and what
many draws of all of them give."""

from collections.abc import Sequence

from gpuyard.draw.palette import COLOURS
from gpuyard.economics.sensitivity import SavingSpread, TornadoBar
from gpuyard.report.figures.frame import TEXT_SIZE, Option, bar_axis, frame, value_axis, x_axis
from gpuyard.units import format_months, format_share, format_usd

_LOW, _HIGH = COLOURS[0], COLOURS[1]
_MOST_BARS = 12
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


def input_name(name: str) -> str:
    """What an input is called in charts and tables."""
    return _NAMES.get(name, name.replace("_usd", "").replace("_", " "))


def input_value(name: str, value: float) -> str:
    """An input as people write it."""
    if "usd" in name:
        if value >= 1:
            return format_usd(value)
        return "$" + max(f"{value:.2f}", f"{value:.3g}", key=len)  # $0.80, and $0.128 of a kWh
    if name.endswith("share") or name in {
        "value_kept_per_year", "discount_per_year", "interest_per_year", "speed_lead",
        "support_share_per_year", "rest_resold",
    }:  # fmt: skip
        return format_share(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tornado_option(bars: Sequence[TornadoBar], saving_usd: float, months: int) -> Option:
    """The chart around what owning saves as stated."""
    shown = list(bars[:_MOST_BARS])
    verb = "saves" if saving_usd >= 0 else "costs"
    option = frame(
        "What decides it",
        f"as stated, owning {verb} {format_usd(abs(saving_usd))}"
        f"{'' if saving_usd >= 0 else ' more'} over {format_months(months)}; one input at a time",
        "Change of what owning saves when one input moves to either end of its range. "
        + " ".join(_described(bar, saving_usd) for bar in shown),
        [{"name": "input at its low end"}, {"name": "input at its high end"}],
    )
    option["tooltip"] = {"trigger": "item", "confine": True}
    option["grid"] |= {"top": 58, "right": 24}
    option["xAxis"] = x_axis(
        "change of the saving, $", axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True}
    )
    option["yAxis"] = bar_axis(_label(bar) for bar in shown) | {"axisLine": {"onZero": False}}
    option["series"] = [
        {
            "name": f"input at its {end} end",
            "type": "bar",
            "stack": "input",
            "barMaxWidth": 22,
            "itemStyle": {"color": colour},
            "data": [_piece(bar, end, saving_usd) for bar in shown],
        }
        for end, colour in (("low", _LOW), ("high", _HIGH))
    ]
    return option


def _label(bar: TornadoBar) -> str:
    return f"{input_name(bar.name)}\n{input_value(bar.name, bar.low)} to {input_value(bar.name, bar.high)}"


def _piece(bar: TornadoBar, end: str, base_usd: float) -> Option:
    at, usd = (
        (bar.low, bar.saving_at_low_usd) if end == "low" else (bar.high, bar.saving_at_high_usd)
    )
    text = f"{input_name(bar.name)} {input_value(bar.name, at)}: owning saves {format_usd(usd)}"
    return {"value": usd - base_usd, "tooltip": {"formatter": text}}


def _described(bar: TornadoBar, base_usd: float) -> str:
    low, high = (
        format_usd(usd - base_usd) for usd in (bar.saving_at_low_usd, bar.saving_at_high_usd)
    )
    return f"{input_name(bar.name)}: {low} to {high}."


def saving_histogram_option(spread: SavingSpread) -> Option:
    """Bars left of zero are draws in which renting was cheaper."""
    middles = [
        (low + high) / 2
        for low, high in zip(spread.edges_usd[:-1], spread.edges_usd[1:], strict=True)
    ]
    series = []
    for name, colour, owning in (
        ("renting is cheaper", COLOURS[1], False),
        ("owning is cheaper", COLOURS[2], True),
    ):
        series.append(
            {
                "name": name,
                "type": "bar",
                "stack": "draws",
                "barCategoryGap": "4%",
                "itemStyle": {"color": colour},
                "data": [
                    count / spread.draws * 100 if (middle > 0) == owning else 0
                    for middle, count in zip(middles, spread.counts, strict=True)
                ],
            }
        )
    low, middle, high = spread.saving_usd
    option = frame(
        "How sure it is",
        f"owning is cheaper in {format_share(spread.owning_is_cheaper)} of {spread.draws:,} draws",
        f"Half of the draws save more than {format_usd(middle)}; 90 % lie between {format_usd(low)} "
        f"and {format_usd(high)}.",
        series,
    )
    option["xAxis"] = x_axis(
        "what owning saves, $",
        type="category",
        data=[format_usd(round(middle)) for middle in middles],
        axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True},
    )
    option["yAxis"] = value_axis("% of the draws")
    option["series"] = series
    return option
