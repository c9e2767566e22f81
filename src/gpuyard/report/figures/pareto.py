"""Builds the chart of a run's cost against its time: the Pareto front, the choice, and usual alternatives."""

import math
from dataclasses import dataclass

from gpuyard.draw.palette import BACKGROUND, COLORS, NEUTRAL
from gpuyard.planner import Choice, PlanResult
from gpuyard.planner.choice import format_dollars
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_frame,
    build_log_axis,
    build_value_axis,
)
from gpuyard.units import format_seconds, format_years


@dataclass(frozen=True)
class _Unit:
    name: str
    seconds: float


_UNITS = (_Unit("seconds", 1), _Unit("minutes", 60), _Unit("hours", 3600), _Unit("days", 86400))
_MAX_NAME = 44
_HEADROOM = 0.15  # share of the axis height
_HALO = {"textBorderColor": BACKGROUND, "textBorderWidth": 3}
_FRONT, _CHOICE, _MEETS, _MISSES = COLORS[0], COLORS[1], COLORS[2], NEUTRAL


def build_pareto_chart(plan: PlanResult) -> ChartOptions:
    """Build the chart of one plan."""
    others = [a for a in plan.alternatives if a.choice is not None]
    unit = _choose_unit(plan)
    series = [_build_front(plan, unit)]
    met = [(a.name, a.choice) for a in others if a.choice and _meets(a.choice)]
    missed = [(a.name, a.choice) for a in others if a.choice and not _meets(a.choice)]
    if met:
        series.append(
            _build_alternatives("alternative that meets the goal", _MEETS, "triangle", met, unit)
        )
    if missed:
        series.append(_build_alternatives("alternative that is ruled out or misses the goal", _MISSES, "diamond", missed, unit))  # fmt: skip
    points = [*plan.front, *(a.choice for a in others if a.choice)]
    if plan.winner:
        times = [c.run_seconds for c in (*points, plan.winner)]
        times.append(plan.goal.time_per_run_seconds or times[0])
        align = _choose_alignment(plan.winner.run_seconds, times)
        series.append(_build_winner(plan.winner, unit, align=align))
    points += [plan.winner] if plan.winner else []
    option = build_frame("Cost against time", _format_subtitle(plan), _describe(plan), series)
    option["tooltip"] = {"trigger": "item", "confine": True, "formatter": "{b}"}
    times = [c.run_seconds / unit.seconds for c in points]
    limit = plan.goal.time_per_run_seconds
    if limit is not None:
        times.append(limit / unit.seconds)
        series[0]["markLine"] = _build_limit(limit, unit)
    option["xAxis"] = {
        "name": f"{unit.name} per finished run",
        "nameLocation": "middle",
        "nameGap": 30,
        **_build_axis(times),
    }
    axis = _build_axis(_add_headroom([c.usd_per_run for c in points]))
    axis["axisLabel"] = {**axis["axisLabel"], "formatter": "${value}"}
    option["yAxis"] = build_value_axis("cost per finished run") | axis
    option["series"] = series
    return option


def _choose_unit(plan: PlanResult) -> _Unit:
    """Choose the largest unit in which the goal, or the slowest run on the front, is at least 2."""
    slowest = max((choice.run_seconds for choice in plan.front), default=3600.0)
    seconds = plan.goal.time_per_run_seconds or slowest
    return max(
        (u for u in _UNITS if u.seconds * 2 <= seconds), key=lambda u: u.seconds, default=_UNITS[0]
    )


def _meets(choice: Choice) -> bool:
    return choice.meets_goal and choice.allowed


def _build_axis(values: list[float]) -> ChartOptions:
    """Build a logarithmic axis, or a linear one if a value is zero or there are no values."""
    if values and min(values) > 0:
        return build_log_axis([min(values) * 0.7, max(values) * 1.3])  # room for labels
    return {"type": "value", "min": 0, "axisLabel": {"fontSize": TEXT_SIZE}}


def _add_headroom(prices: list[float]) -> list[float]:
    """Add a higher price, so that the label above the most expensive point does not cover the axis name."""
    low, high = min(prices, default=0.0), max(prices, default=0.0)
    return [*prices, high * (high / low) ** _HEADROOM] if low > 0 else prices


def _get_coordinates(choice: Choice, unit: "_Unit") -> list[float]:
    return [choice.run_seconds / unit.seconds, choice.usd_per_run]


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1].rstrip()}…"


def _format_tooltip(name: str, choice: Choice) -> str:
    return f"{name}: {choice.price}, {choice.duration}"


def _build_front(plan: PlanResult, unit: "_Unit") -> ChartOptions:
    data: list[ChartOptions] = [
        {"name": _format_tooltip(c.summary, c), "value": _get_coordinates(c, unit)}
        for c in plan.front
    ]
    # the front leaves space above and right of the fastest point, and below and left of the cheapest
    labels = ((0, "fastest", "top", "left"), (len(data) - 1, "cheapest", "bottom", "right"))
    for index, name, side, align in labels[: len(data)]:
        if plan.winner is None or plan.front[index].machines != plan.winner.machines:
            data[index]["label"] = {
                "show": True,
                "formatter": f"{name}: {_shorten(plan.front[index].machines)}",
                "position": side,
                "align": align,
                "distance": 8,
                "fontSize": TEXT_SIZE,
                "color": _FRONT,
                **_HALO,
            }
    return {
        "name": "Pareto front: no option is both cheaper and faster",
        "type": "line",
        "step": "end",
        "data": data,
        "symbol": "circle",
        "symbolSize": 7,
        "lineStyle": {"type": "solid", "width": 2, "color": _FRONT},
        "itemStyle": {"color": _FRONT},
    }


def _build_alternatives(
    name: str, color: str, symbol: str, choices: list[tuple[str, Choice]], unit: "_Unit"
) -> ChartOptions:
    return {
        "name": name,
        "type": "scatter",
        "symbol": symbol,
        "symbolSize": 11,
        "data": [
            {"name": _format_tooltip(label, c), "value": _get_coordinates(c, unit)}
            for label, c in choices
        ],
        "itemStyle": {"color": color},
    }


def _choose_alignment(seconds: float, times: list[float]) -> str:
    """Choose the alignment of the choice's label that keeps it inside the logarithmic axis."""
    first, last = min(times) * 0.7, max(times) * 1.3
    if first <= 0:
        return "left"
    return "right" if math.log(seconds / first) > 0.7 * math.log(last / first) else "left"


def _build_winner(winner: Choice, unit: "_Unit", *, align: str) -> ChartOptions:
    name = _format_tooltip(winner.summary, winner)
    ends = (
        [winner.run_seconds_low / unit.seconds, winner.usd_per_run_low],
        [winner.run_seconds_high / unit.seconds, winner.usd_per_run_high],
    )
    figures = f"{format_dollars(winner.usd_per_run)}, {format_seconds(winner.run_seconds)}"
    label = f"{_shorten(winner.machines)}\n{figures}"
    return {
        "name": "the choice, with its 90% interval",
        "type": "line",
        "data": [
            {"name": "at the fast end", "value": ends[0]},
            {"name": name, "value": _get_coordinates(winner, unit)},
            {"name": "at the slow end", "value": ends[1]},
        ],
        "symbol": "rect",
        "symbolSize": 4,
        "lineStyle": {"type": "solid", "width": 3, "color": _CHOICE},
        "itemStyle": {"color": _CHOICE},
        "markPoint": {
            "symbol": "circle",
            "symbolSize": 14,
            "itemStyle": {"color": _CHOICE},
            "label": {
                "formatter": label,
                "position": "top",
                "align": align,
                "distance": 12,
                "fontWeight": 600,
                "lineHeight": 16,
                **_HALO,
            },
            "data": [{"name": name, "coord": _get_coordinates(winner, unit)}],
        },
    }


def _build_limit(seconds: float, unit: "_Unit") -> ChartOptions:
    return {
        "symbol": "none",
        "silent": True,
        "lineStyle": {"type": "dashed", "color": _CHOICE},
        "label": {"formatter": f"goal: {format_seconds(seconds)}", "position": "insideEndTop"},
        "data": [{"xAxis": seconds / unit.seconds}],
    }


def _format_subtitle(plan: PlanResult) -> str:
    budget = plan.goal.budget_usd
    limit = f", {format_dollars(budget)} total" if budget is not None else ""
    return f"{plan.goal.workload} in {plan.precision_label}: {plan.candidates:,} candidates, {plan.goal.runs:,.0f} runs over {format_years(plan.goal.months / 12)}{limit}"


def _describe(plan: PlanResult) -> str:
    fastest, cheapest = (plan.front[0], plan.front[-1]) if plan.front else (None, None)
    ends = (
        f" The fastest is {fastest.summary} at {format_seconds(fastest.run_seconds)} and "
        f"{format_dollars(fastest.usd_per_run)} per run, the cheapest {cheapest.summary} at "
        f"{format_seconds(cheapest.run_seconds)} and {format_dollars(cheapest.usd_per_run)}."
        if fastest and cheapest
        else ""
    )
    return f"{plan.verdict}{ends}"
