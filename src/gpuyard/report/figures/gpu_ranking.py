"""GPUs as bars, by one figure of theirs."""

from collections.abc import Callable, Sequence

from gpuyard.draw.palette import COLOURS
from gpuyard.planner.gpu_ranking import RankedGpu
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame

_MOST_BARS = 10  # more are too tall to stand two by two
_BY_BASIS = {"measured": COLOURS[2], "published": COLOURS[0], "predicted": COLOURS[1]}
_NAMES = {
    "speed": ("Speed", "samples/s of one GPU"),
    "speed-per-dollar": ("Speed for the price", "samples/s per $1,000"),
    "speed-per-rent": ("Samples for the rent", "1,000 samples per rented dollar"),
    "speed-per-watt": ("Speed for the watt", "samples/s per watt"),
}


def ranking_option(
    ranked: Sequence[RankedGpu], sort: str, figure: Callable[[RankedGpu], float | None]
) -> Option | None:
    """The best at the top; None where no GPU has the figure."""
    scale = 1e-3 if sort == "speed-per-rent" else 1.0
    known = [(one, value * scale) for one in ranked if (value := figure(one)) is not None]
    best = sorted(known, key=lambda pair: -pair[1])[:_MOST_BARS]
    if not best:
        return None
    title, unit = _NAMES[sort]
    series = [
        {
            "name": basis,
            "type": "bar",
            "stack": "gpus",
            "barMaxWidth": 18,
            "itemStyle": {"color": colour},
            "data": [float(f"{v:.4g}") if one.basis == basis else None for one, v in best],
        }
        for basis, colour in _BY_BASIS.items()
        if any(one.basis == basis for one, _ in best)
    ]
    first, value = best[0]
    described = f"{title}: {len(best)} GPUs as bars, {first.gpu.id} first with {value:.4g} {unit}."
    precision = " or ".join(sorted({one.precision for one, _ in best}))
    subtitle = f"{unit} in {precision}"
    if len(known) > len(best):
        subtitle += f", the best {len(best)}"
    option = frame(title, subtitle, described, series)
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
        "data": [one.gpu.id for one, _ in best],
        "axisLabel": {"fontSize": TEXT_SIZE},
    }
    option["series"] = series
    return option
