"""Builds bar charts that rank GPUs by one of their figures."""

from collections.abc import Callable, Sequence

from gpuyard.draw.palette import COLORS
from gpuyard.planner.gpu_ranking import RankedGpu
from gpuyard.report.figures.frame import TEXT_SIZE, ChartOptions, build_frame

_MAX_BARS = 10  # with more bars, charts are too tall to fit side by side
_BY_BASIS = {"measured": COLORS[2], "published": COLORS[0], "predicted": COLORS[1]}
_NAMES = {
    "speed": ("Speed", "samples/s of one GPU"),
    "speed-per-dollar": ("Speed per dollar", "samples/s per $1,000"),
    "speed-per-rent": ("Samples per dollar of rent", "1,000 samples per rented dollar"),
    "speed-per-watt": ("Speed per watt", "samples/s per watt"),
}


def build_ranking_chart(
    ranked: Sequence[RankedGpu], sort: str, figure: Callable[[RankedGpu], float | None]
) -> ChartOptions | None:
    """Build a chart with the best GPU on top, or None if no GPU has the figure."""
    scale = 1e-3 if sort == "speed-per-rent" else 1.0
    figures = [(gpu, value * scale) for gpu in ranked if (value := figure(gpu)) is not None]
    best = sorted(figures, key=lambda pair: -pair[1])[:_MAX_BARS]
    if not best:
        return None
    title, unit = _NAMES[sort]
    series = [
        {
            "name": basis,
            "type": "bar",
            "stack": "gpus",
            "barMaxWidth": 18,
            "itemStyle": {"color": color},
            "data": [float(f"{v:.4g}") if gpu.basis == basis else None for gpu, v in best],
        }
        for basis, color in _BY_BASIS.items()
        if any(gpu.basis == basis for gpu, _ in best)
    ]
    first, value = best[0]
    description = (
        f"{title}: {len(best)} GPUs as bars. {first.gpu.id} is first with {value:.4g} {unit}."
    )
    precision = " or ".join(sorted({gpu.precision for gpu, _ in best}))
    subtitle = f"{unit} in {precision}"
    if len(figures) > len(best):
        subtitle += f", top {len(best)}"
    option = build_frame(title, subtitle, description, series)
    option["xAxis"] = {
        "type": "value",
        "name": unit,
        "nameLocation": "middle",
        "nameGap": 30,
        "splitNumber": 4,
        "axisLabel": {"fontSize": TEXT_SIZE},
    }
    option["yAxis"] = {
        "type": "category",
        "inverse": True,
        "data": [gpu.gpu.id for gpu, _ in best],
        "axisLabel": {"fontSize": TEXT_SIZE},
    }
    option["series"] = series
    return option
