"""Adds charts and the time line of a step to the answer of a prediction, for a page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuyard.predictor import ClusterPrediction
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Charts, Drawing, Part, RendererOnly
from gpuyard.report.figures.predicted import (
    build_predicted_efficiency,
    build_predicted_throughput,
    build_step_parts,
)
from gpuyard.specs import KnownThroughput

if TYPE_CHECKING:
    from gpuyard.predictor.explain.timeline import StepTimeline


def add_prediction_charts(
    answer: Answer,
    results: Sequence[ClusterPrediction],
    timeline: "StepTimeline | None" = None,
    measured: Sequence[KnownThroughput] = (),
) -> Answer:
    """Return the answer with charts after its first sentence; its document stays the same."""
    options = {
        "throughput": build_predicted_throughput(results, measured),
        "efficiency": build_predicted_efficiency(results),
    }
    if len(results) == 1:
        options["step"] = build_step_parts(results[0])
    charts = [Chart(f"chart-{name}", "", {ALL_BATCHES: each}) for name, each in options.items()]
    added: list[Part] = [Charts(charts)]
    if timeline is not None:
        from gpuyard.draw.timeline import draw_timeline_svg

        largest = max(results[0].predictions, key=lambda p: p.gpus)
        title = f"One step with {largest.gpus} × a batch of {largest.batch_per_gpu}"
        added.append(Drawing(draw_timeline_svg(timeline, title)))
    return replace(answer, parts=[answer.parts[0], RendererOnly("page", added), *answer.parts[1:]])
