"""Builds the chart of a step's parts as shares, with measured and predicted bars next to each other."""

from dataclasses import dataclass
from html import escape

from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_bar_axis,
    build_frame,
    build_x_axis,
)
from gpuyard.report.figures.points import Points, select_points
from gpuyard.study.result import WorkloadResult
from gpuyard.units import format_seconds

# the colors also differ in lightness, so that they can be told apart on a gray printout
_PARTS = (
    ("compute", "#56b4e9"),
    ("exposed communication", "#d55e00"),
    ("input", "#f0c93a"),
    ("straggling", "#7b4f9d"),
)
_HATCHED: ChartOptions = {
    "symbol": "rect",
    "symbolSize": 1,
    "rotation": 0.785,
    "color": "rgba(255, 255, 255, 0.55)",
    "dashArrayX": [1, 0],
    "dashArrayY": [2, 6],
}


@dataclass(frozen=True)
class _Bar:
    platform: str
    count: str
    basis: str
    seconds: tuple[float, float, float, float]  # in the order of _PARTS

    @property
    def label(self) -> str:
        return f"{self.count}, {self.basis}\n{self.platform}"


def build_step_split_chart(workload: WorkloadResult, batch: int) -> ChartOptions:
    """Build the chart of one workload at one batch size per GPU."""
    bars = _list_bars(select_points(workload, batch))
    option = build_frame(
        "Where a step's time goes",
        f"{workload.name} in {workload.precision}, batch {batch:,} per GPU",
        f"Shares of one step of {workload.name} at a batch of {batch} per GPU. "
        + " ".join(_describe(bar) for bar in bars),
        [{"name": name} for name, _ in _PARTS],
    )
    option["tooltip"] = {"trigger": "item", "confine": True}
    option["grid"] |= {"top": 58, "right": 58}
    option["xAxis"] = build_x_axis("% of the step", min=0, max=100)
    option["yAxis"] = build_bar_axis(bar.label for bar in bars)
    option["series"] = [
        {
            "name": name,
            "type": "bar",
            "stack": "step",
            "barMaxWidth": 22,
            "itemStyle": {"color": color},
            "data": [_build_piece(bar, name, bar.seconds[i]) for bar in bars],
        }
        for i, (name, color) in enumerate(_PARTS)
    ]
    option["series"].append(_build_totals(bars))
    return option


def _list_bars(points: Points) -> list[_Bar]:
    here: dict[int, list[_Bar]] = {}
    for gpus, m in points.measured.items():
        parts = (m.compute_seconds, m.exposed_communication_seconds, m.input_seconds, 0.0)
        bar = _Bar(points.here, _format_count(gpus, True), "measured", parts)
        here.setdefault(gpus, []).append(bar)
    elsewhere: list[_Bar] = []
    for curve in points.curves:
        for gpus, prediction in curve.by_gpus.items():
            step = prediction.step
            parts = (
                step.compute_seconds,
                step.exposed_communication_seconds,
                step.input_seconds,
                step.straggler_seconds,
            )
            bar = _Bar(curve.label, _format_count(gpus, curve.here), "predicted", parts)
            if curve.here:
                here.setdefault(gpus, []).append(bar)
            else:
                elsewhere.append(bar)
    return [bar for _, bars in sorted(here.items()) for bar in bars] + elsewhere


def _format_count(gpus: int, here: bool) -> str:
    noun = "worker" if here else "GPU"
    return f"{gpus:,} {noun}" if gpus == 1 else f"{gpus:,} {noun}s"


def _build_piece(bar: _Bar, part: str, seconds: float) -> ChartOptions:
    total = sum(bar.seconds)
    share = 100 * seconds / total if total > 0 else 0.0
    label = f"{escape(bar.platform)}, {bar.count}, {bar.basis}"
    piece: ChartOptions = {
        "value": share,
        "tooltip": {
            "formatter": f"{label}<br>{part}: {format_seconds(seconds)}, {share:.1f}% of the step"
        },
    }
    if bar.basis == "predicted":
        piece["itemStyle"] = {"decal": _HATCHED}
    return piece


def _build_totals(bars: list[_Bar]) -> ChartOptions:
    """Build an invisible series that labels each bar with the total time of the step."""
    return {
        "name": "step",
        "type": "bar",
        "barGap": "-100%",
        "barMaxWidth": 22,
        "silent": True,
        "tooltip": {"show": False},
        "itemStyle": {"color": "transparent"},
        "data": [
            {
                "value": 100,
                "label": {
                    "show": True,
                    "position": "right",
                    "fontSize": TEXT_SIZE,
                    "textBorderWidth": 0,
                    "formatter": format_seconds(sum(bar.seconds)),
                },
            }
            for bar in bars
        ],
    }


def _describe(bar: _Bar) -> str:
    total = sum(bar.seconds) or 1.0
    shares = ", ".join(
        f"{name} {seconds / total:.0%}"
        for (name, _), seconds in zip(_PARTS, bar.seconds, strict=True)
    )
    return f"{bar.platform}, {bar.count}, {bar.basis}: {shares}."
