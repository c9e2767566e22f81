"""The plots of results, drawn with matplotlib or plotly, whichever is installed; gpuyard requires neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gpuyard.errors import MissingRequirement


@dataclass(frozen=True)
class Line:
    """A line of a plot, with its interval if there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Plot:
    """The plot of a result: lines over numbers, or bars if each x is a name."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line] = ()
    bars: Sequence[tuple[str, float]] = ()


def draw_plot(plot: Plot) -> Any:
    """Return matplotlib's axes, or a plotly figure if only plotly is installed."""
    for name, draw in (
        ("matplotlib.pyplot", _draw_matplotlib),
        ("plotly.graph_objects", _draw_plotly),
    ):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return draw(plot, library)
    raise MissingRequirement(
        "plot() needs matplotlib or plotly, and neither is installed: pip install matplotlib"
    )


def _draw_matplotlib(plot: Plot, pyplot: Any) -> Any:
    _, axes = pyplot.subplots()
    for line in plot.lines:
        (drawn,) = axes.plot(line.x, line.y, marker="o", label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, alpha=0.15, color=drawn.get_color())
    if plot.bars:
        axes.barh([name for name, _ in plot.bars], [value for _, value in plot.bars])
        axes.invert_yaxis()
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    if plot.lines:
        axes.set_ylim(bottom=0)
    if len(plot.lines) > 1:
        axes.legend()
    return axes


def _draw_plotly(plot: Plot, graph_objects: Any) -> Any:
    figure = graph_objects.Figure()
    for line in plot.lines:
        figure.add_trace(_plotly_line(line, graph_objects))
    if plot.bars:
        names, values = zip(*plot.bars, strict=True)
        figure.add_trace(graph_objects.Bar(x=values, y=names, orientation="h"))
    figure.update_layout(title=plot.title, xaxis_title=plot.x_label, yaxis_title=plot.y_label)
    return figure


def _plotly_line(line: Line, graph_objects: Any) -> Any:
    interval: dict[str, Any] = {}
    if line.low:
        above = [high - y for high, y in zip(line.high, line.y, strict=True)]
        below = [y - low for low, y in zip(line.low, line.y, strict=True)]
        interval = {"error_y": {"type": "data", "array": above, "arrayminus": below}}
    return graph_objects.Scatter(
        x=list(line.x), y=list(line.y), mode="lines+markers", name=line.name, **interval
    )
