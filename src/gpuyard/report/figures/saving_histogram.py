"""What owning saves in many draws of all uncertain inputs."""

from gpuyard.economics.sensitivity import Spread
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, value_axis
from gpuyard.report.figures.looks import COLOURS
from gpuyard.units import format_share, format_usd


def saving_histogram_option(spread: Spread) -> Option:
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
    option["xAxis"] = {
        "type": "category",
        "name": "what owning saves, $",
        "nameLocation": "middle",
        "nameGap": 30,
        "data": [format_usd(round(middle)) for middle in middles],
        "axisLabel": {"fontSize": TEXT_SIZE, "hideOverlap": True},
    }
    option["yAxis"] = value_axis("% of the draws")
    option["series"] = series
    return option
