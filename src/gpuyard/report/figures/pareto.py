"""Cost of a finished run against its time: the front, the choice, and the well-known alternatives."""

import math
from dataclasses import dataclass

from gpuyard.draw.palette import COLOURS, GROUND, NEUTRAL
from gpuyard.planner import Choice, PlanResult
from gpuyard.planner.result import dollars
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, log_axis, value_axis
from gpuyard.units import format_seconds, format_years


@dataclass(frozen=True)
class _Unit:
    name: str
    seconds: float


_UNITS = (_Unit("seconds", 1), _Unit("minutes", 60), _Unit("hours", 3600), _Unit("days", 86400))
_LONGEST_NAME = 44
_HEADROOM = 0.15  # of the axis' height
_HALO = {"textBorderColor": GROUND, "textBorderWidth": 3}
_FRONT, _CHOICE, _MEETS, _MISSES = COLOURS[0], COLOURS[1], COLOURS[2], NEUTRAL


def pareto_option(plan: PlanResult) -> Option:
    """The chart of one plan."""
    others = [a for a in plan.alternatives if a.choice is not None]
    unit = _unit(plan)
    series = [_front(plan, unit)]
    met = [(a.name, a.choice) for a in others if a.choice and _meets(a.choice)]
    missed = [(a.name, a.choice) for a in others if a.choice and not _meets(a.choice)]
    if met:
        series.append(_dots("alternative that meets the goal", _MEETS, "triangle", met, unit))
    if missed:
        series.append(_dots("alternative that is ruled out or misses", _MISSES, "diamond", missed, unit))  # fmt: skip
    points = [*plan.front, *(a.choice for a in others if a.choice)]
    if plan.winner:
        times = [c.run_seconds for c in (*points, plan.winner)]
        times.append(plan.goal.time_per_run_seconds or times[0])
        align = _away_from_the_edge(plan.winner.run_seconds, times)
        series.append(_winner(plan.winner, unit, align=align))
    points += [plan.winner] if plan.winner else []
    option = frame("Cost against time", _subtitle(plan), _description(plan), series)
    option["tooltip"] = {"trigger": "item", "confine": True, "formatter": "{b}"}
    times = [c.run_seconds / unit.seconds for c in points]
    limit = plan.goal.time_per_run_seconds
    if limit is not None:
        times.append(limit / unit.seconds)
        series[0]["markLine"] = _limit(limit, unit)
    option["xAxis"] = {
        "name": f"{unit.name} for a finished run",
        "nameLocation": "middle",
        "nameGap": 30,
        **_axis(times),
    }
    axis = _axis(_with_headroom([c.usd_per_run for c in points]))
    axis["axisLabel"] = {**axis["axisLabel"], "formatter": "${value}"}
    option["yAxis"] = value_axis("cost of a finished run") | axis
    option["series"] = series
    return option


def _unit(plan: PlanResult) -> _Unit:
    """The largest unit of which the goal, or the slowest on the front, has two or more."""
    slowest = max((choice.run_seconds for choice in plan.front), default=3600.0)
    seconds = plan.goal.time_per_run_seconds or slowest
    return max(
        (u for u in _UNITS if u.seconds * 2 <= seconds), key=lambda u: u.seconds, default=_UNITS[0]
    )


def _meets(choice: Choice) -> bool:
    return choice.meets_goal and choice.allowed


def _axis(values: list[float]) -> Option:
    """Logarithmic, unless something is free or there is nothing."""
    if values and min(values) > 0:
        return log_axis([min(values) * 0.7, max(values) * 1.3])  # room for labels
    return {"type": "value", "min": 0, "axisLabel": {"fontSize": TEXT_SIZE}}


def _with_headroom(prices: list[float]) -> list[float]:
    """A price more, so that the name over the fastest, often the most expensive, stays under the axis' own."""
    low, high = min(prices, default=0.0), max(prices, default=0.0)
    return [*prices, high * (high / low) ** _HEADROOM] if low > 0 else prices


def _point(choice: Choice, unit: "_Unit") -> list[float]:
    return [choice.run_seconds / unit.seconds, choice.usd_per_run]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"


def _words(name: str, choice: Choice) -> str:
    return f"{name}: {choice.price}, {choice.duration}"


def _front(plan: PlanResult, unit: "_Unit") -> Option:
    data: list[Option] = [{"name": _words(c.what, c), "value": _point(c, unit)} for c in plan.front]
    # over the fastest and to its right, under the cheapest and to its left there is nothing on the front
    corners = ((0, "fastest", "top", "left"), (len(data) - 1, "cheapest", "bottom", "right"))
    for at, word, side, align in corners[: len(data)]:
        if plan.winner is None or plan.front[at].machines != plan.winner.machines:
            data[at]["label"] = {
                "show": True,
                "formatter": f"{word}: {_short(plan.front[at].machines)}",
                "position": side,
                "align": align,
                "distance": 8,
                "fontSize": TEXT_SIZE,
                "color": _FRONT,
                **_HALO,
            }
    return {
        "name": "best options: no other is both cheaper and faster",
        "type": "line",
        "step": "end",
        "data": data,
        "symbol": "circle",
        "symbolSize": 7,
        "lineStyle": {"type": "solid", "width": 2, "color": _FRONT},
        "itemStyle": {"color": _FRONT},
    }


def _dots(
    name: str, colour: str, symbol: str, found: list[tuple[str, Choice]], unit: "_Unit"
) -> Option:
    return {
        "name": name,
        "type": "scatter",
        "symbol": symbol,
        "symbolSize": 11,
        "data": [{"name": _words(label, c), "value": _point(c, unit)} for label, c in found],
        "itemStyle": {"color": colour},
    }


def _away_from_the_edge(seconds: float, times: list[float]) -> str:
    """To which side of the choice its name has room, on an axis that is logarithmic."""
    first, last = min(times) * 0.7, max(times) * 1.3
    if first <= 0:
        return "left"
    return "right" if math.log(seconds / first) > 0.7 * math.log(last / first) else "left"


def _winner(winner: Choice, unit: "_Unit", *, align: str) -> Option:
    name = _words(winner.what, winner)
    ends = (
        [winner.run_seconds_low / unit.seconds, winner.usd_per_run_low],
        [winner.run_seconds_high / unit.seconds, winner.usd_per_run_high],
    )
    figures = f"{dollars(winner.usd_per_run)}, {format_seconds(winner.run_seconds)}"
    label = f"{_short(winner.machines)}\n{figures}"
    return {
        "name": "the choice, with its 90 % interval",
        "type": "line",
        "data": [
            {"name": "at the fast end", "value": ends[0]},
            {"name": name, "value": _point(winner, unit)},
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
            "data": [{"name": name, "coord": _point(winner, unit)}],
        },
    }


def _limit(seconds: float, unit: "_Unit") -> Option:
    return {
        "symbol": "none",
        "silent": True,
        "lineStyle": {"type": "dashed", "color": _CHOICE},
        "label": {"formatter": f"goal: {format_seconds(seconds)}", "position": "insideEndTop"},
        "data": [{"xAxis": seconds / unit.seconds}],
    }


def _subtitle(plan: PlanResult) -> str:
    budget = plan.goal.budget_usd
    within = f", {dollars(budget)} total" if budget is not None else ""
    return f"{plan.goal.workload} in {plan.trained_in}: {plan.candidates:,} candidates, {plan.goal.runs:,.0f} runs over {format_years(plan.goal.months / 12)}{within}"


def _description(plan: PlanResult) -> str:
    fastest, cheapest = (plan.front[0], plan.front[-1]) if plan.front else (None, None)
    ends = (
        f" The fastest is {fastest.what} at {format_seconds(fastest.run_seconds)} and "
        f"{dollars(fastest.usd_per_run)} per run, the cheapest {cheapest.what} at "
        f"{format_seconds(cheapest.run_seconds)} and {dollars(cheapest.usd_per_run)}."
        if fastest and cheapest
        else ""
    )
    return f"{plan.verdict}{ends}"
