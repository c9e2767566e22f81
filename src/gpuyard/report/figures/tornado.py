"""Which uncertain input decides: what each alone does to the saving, the widest bar first."""

from collections.abc import Sequence

from gpuyard.economics.sensitivity import Bar
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame
from gpuyard.report.figures.looks import COLOURS
from gpuyard.units import format_months, format_share, format_usd

_LOW, _HIGH = COLOURS[0], COLOURS[1]
_MOST_BARS = 12
_NAMES = {
    "rent_usd_per_hour": "rent an hour",
    "reserved_usd_per_year": "reserved price a year",
    "rent_extras_usd_per_month": "storage and egress a month",
    "hours_per_year": "hours of use a year",
    "hardware_usd": "price of the hardware",
    "usd_per_kwh": "electricity a kWh",
    "watts": "power under load, W",
    "pue": "PUE",
    "colocation_usd_per_year": "colocation a year",
    "colocation_usd_per_kw_month": "colocation a kW and month",
    "value_kept_per_year": "value kept a year",
    "discount_per_year": "discount rate",
    "rest_resold": "what a resold rest brings",
    "interest_per_year": "interest",
    "usd_per_failure": "repair of a failure",
    "gpu_hours_per_failure": "GPU-hours a failure",
    "staff_usd_per_hour": "staff an hour",
}


def input_name(name: str) -> str:
    """What an input is called in charts and tables."""
    return _NAMES.get(name, name.replace("_usd", "").replace("_", " "))


def input_value(name: str, value: float) -> str:
    """An input as people write it."""
    if "usd" in name:
        return f"${value:,.3g}" if value < 1 else format_usd(value)
    if name.endswith("share") or name in {
        "value_kept_per_year", "discount_per_year", "interest_per_year", "speed_lead",
        "support_share_per_year", "rest_resold",
    }:  # fmt: skip
        return format_share(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tornado_option(bars: Sequence[Bar], saving_usd: float, months: int) -> Option:
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
    option["xAxis"] = {
        "type": "value",
        "name": "change of the saving, $",
        "nameLocation": "middle",
        "nameGap": 30,
        "axisLabel": {"fontSize": TEXT_SIZE, "hideOverlap": True},
    }
    option["yAxis"] = {
        "type": "category",
        "inverse": True,
        "data": [_label(bar) for bar in shown],
        "axisTick": {"show": False},
        "axisLine": {"onZero": False},
        "axisLabel": {
            "fontSize": TEXT_SIZE,
            "interval": 0,
            "width": 150,
            "overflow": "truncate",
            "lineHeight": 15,
        },
    }
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


def _label(bar: Bar) -> str:
    return f"{input_name(bar.name)}\n{input_value(bar.name, bar.low)} to {input_value(bar.name, bar.high)}"


def _piece(bar: Bar, end: str, base_usd: float) -> Option:
    at, usd = (
        (bar.low, bar.saving_at_low_usd) if end == "low" else (bar.high, bar.saving_at_high_usd)
    )
    text = f"{input_name(bar.name)} {input_value(bar.name, at)}: owning saves {format_usd(usd)}"
    return {"value": usd - base_usd, "tooltip": {"formatter": text}}


def _described(bar: Bar, base_usd: float) -> str:
    low, high = (
        format_usd(usd - base_usd) for usd in (bar.saving_at_low_usd, bar.saving_at_high_usd)
    )
    return f"{input_name(bar.name)}: {low} to {high}."
