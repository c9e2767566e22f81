"""Builds the charts of a large model: speed against memory, and the step and the memory by part."""

from collections.abc import Mapping, Sequence

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


def build_step_chart(predictions: Sequence[LargePrediction]) -> ChartOptions:
    """Build stacked bars of what the GPUs do, or wait for, in a step: the largest parts, and the others together."""
    most = {
        name: max(p.step[name] / p.step_seconds for p in predictions)
        for name in predictions[0].step
    }
    shown = sorted(most, key=lambda name: -most[name])[: len(COLORS) - 1]
    parts = {name: [p.step[name] for p in predictions] for name in most if name in shown}
    parts["other"] = [
        p.step_seconds - sum(values)
        for p, values in zip(predictions, zip(*parts.values(), strict=True), strict=True)
    ]
    return _build_bars(
        predictions,
        parts,
        "s",
        title="Step by part",
        subtitle="what the GPUs do or wait for",
        description="Seconds of a step by part, for each number of GPUs",
    )


def build_memory_chart(predictions: Sequence[LargePrediction]) -> ChartOptions:
    """Build stacked bars of the memory on the fullest GPU."""
    parts = {name: [p.memory[name] / 1e9 for p in predictions] for name in predictions[0].memory}
    return _build_bars(
        predictions,
        parts,
        "GB",
        title="Memory by part",
        subtitle="of the fullest GPU",
        description="Gigabytes on the fullest GPU by part, for each number of GPUs",
    )


def _build_bars(
    predictions: Sequence[LargePrediction],
    parts: Mapping[str, list[float]],
    unit: str,
    *,
    title: str,
    subtitle: str,
    description: str,
) -> ChartOptions:
    series: list[ChartOptions] = [
        {
            "name": name,
            "type": "bar",
            "stack": "parts",
            "color": COLORS[i % len(COLORS)],
            "data": [round(value, 3) for value in values],
        }
        for i, (name, values) in enumerate(parts.items())
    ]
    chart = build_frame(title, subtitle, description, series)
    chart["xAxis"] = build_category_axis("GPUs", [str(p.gpus) for p in predictions])
    chart["yAxis"] = build_value_axis(unit)
    return chart | {"series": series}
