"""Builds the charts of a large model: speed against memory, and memory by part."""

from collections.abc import Sequence

from gpuyard.draw.palette import COLORS
from gpuyard.predictor.large.prediction import LargePrediction, LargeResult
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_category_axis,
    build_frame,
    build_value_axis,
    build_x_axis,
)


def build_layouts_chart(result: LargeResult, gpus: int) -> ChartOptions:
    """Build the front of layouts that no other beats in both speed and memory."""
    points = [[a.memory_bytes / 1e9, a.tokens_per_second / gpus] for a in reversed(result.pareto)]
    series = [
        {"name": "layouts", "type": "line", "data": points, "symbolSize": 9, "color": COLORS[0]}
    ]
    chart = build_frame(
        "Speed against memory",
        f"the fastest layouts of {result.workload} on {gpus} GPUs",
        "Tokens per second per GPU over memory per GPU, for the fastest layouts",
        series,
    )
    chart["xAxis"] = build_x_axis("GB per GPU", scale=True)
    chart["yAxis"] = build_value_axis("tokens/s per GPU")
    return chart | {"series": series}


def build_memory_chart(predictions: Sequence[LargePrediction]) -> ChartOptions:
    """Build stacked bars of the memory on the fullest GPU."""
    names = list(predictions[0].memory)
    series: list[ChartOptions] = [
        {
            "name": name,
            "type": "bar",
            "stack": "memory",
            "color": COLORS[i % len(COLORS)],
            "data": [round(p.memory[name] / 1e9, 2) for p in predictions],
        }
        for i, name in enumerate(names)
    ]
    chart = build_frame(
        "Memory by part",
        "of the fullest GPU",
        "Gigabytes on the fullest GPU by part, for each number of GPUs",
        series,
    )
    chart["xAxis"] = build_category_axis("GPUs", [str(p.gpus) for p in predictions])
    chart["yAxis"] = build_value_axis("GB")
    return chart | {"series": series}
