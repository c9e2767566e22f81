"""Find the single run that would narrow a prediction most.

Every smaller configuration is tried as a hypothetical measurement with several likely outcomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.interval import PredictionInterval, estimate_interval
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.predicted import Prediction
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.software_stacks.evidence import (
    Configuration,
    Point,
    condition_on_points,
    find_measured_points,
)
from gpuyard.predictor.table import Configurations, compute_step_parts

_OUTCOME_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
_MAX_WIDTH_RATIO = 0.85  # a run that narrows the interval less than this is not worth a sentence


@dataclass(frozen=True)
class NextRun:
    """The single run that would make one prediction most certain."""

    gpus: int
    nodes: int
    batch_per_gpu: int
    for_gpus: int
    width_now: float  # half the interval as a share of the prediction
    width_after: float

    @property
    def description(self) -> str:
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        nodes = "" if self.nodes == 1 else f" of {self.nodes} nodes"
        return (
            f"A one-minute run on {gpus}{nodes} would narrow the interval "
            f"from ±{100 * self.width_now:.0f}% to ±{100 * self.width_after:.0f}%"
        )

    @property
    def sentence(self) -> str:
        return (
            f"{self.description} for {self.for_gpus} GPUs at a batch of {self.batch_per_gpu}; "
            "put its samples/s under the workload's 'measured'."
        )


def find_next_run(scenario: PlatformScenario, prediction: Prediction) -> NextRun | None:
    """Find the smaller run that would narrow a prediction most, or None if no run narrows it much."""
    if prediction.fits is False:  # the run would not fit either
        return None
    if prediction.gpus == 1 or scenario.platform.link_basis != "assumed link":
        return None
    target = (prediction.placement, prediction.batch_per_gpu)
    points = find_measured_points(scenario)
    measured = {point.configuration for point in points}
    width_now = (prediction.high - prediction.low) / 2 / prediction.samples_per_second
    candidates = []
    for placement in _list_candidates(scenario, prediction):
        if (placement, prediction.batch_per_gpu) in measured:
            continue
        width = _expected_width(scenario, target, points, placement)
        # among runs that are about equally good, prefer the one with fewer GPUs
        candidates.append((round(width, 2), placement.gpus, placement, width))
    if not candidates:
        return None
    _, _, best, width = min(candidates, key=lambda candidate: candidate[:2])
    if width > _MAX_WIDTH_RATIO * width_now:
        return None
    return NextRun(
        best.gpus, best.nodes, prediction.batch_per_gpu, prediction.gpus, width_now, width
    )


def _list_candidates(scenario: PlatformScenario, prediction: Prediction) -> list[Placement]:
    """List smaller placements, and a single GPU if its speed was not measured."""
    platform = scenario.platform
    counts = [n for n in scenario.default_gpu_counts() if 1 < n < prediction.gpus]
    counts = counts or [prediction.gpus]
    is_measured = scenario.line.basis in ("measured", "measured here")
    single_gpu = [] if is_measured else [Placement(1, 1, 1)]
    return [*single_gpu, *platform.placements([n for n in counts if n <= platform.gpus])]


def _expected_width(
    scenario: PlatformScenario, target: Configuration, points: Sequence[Point], run: Placement
) -> float:
    """Return the mean width of the target's interval over the likely outcomes of a run."""
    if run.gpus == 1:
        measured = replace(scenario, line=replace(scenario.line, basis="measured"))
        if points:
            return _half_width(condition_on_points(measured, [target], points).interval)
        table = measured.build_table(Configurations.from_pairs([target]))
        return _half_width(
            estimate_interval(table, compute_step_parts(table), c.UNCERTAINTY["measured"])
        )
    batch = target[1]
    expected = condition_on_points(scenario, [(run, batch)], points)
    middle = float(expected.log_seconds[0])
    widths = []
    for quantile in _OUTCOME_QUANTILES:
        side = (quantile - 0.5) / 0.45  # share of the way to an end of the interval
        log_distance = expected.interval.slow[0] if side > 0 else expected.interval.fast[0]
        seconds = np.exp(middle + side * float(log_distance))
        outcome = Point(run, batch, run.gpus * batch / float(seconds))
        posterior = condition_on_points(scenario, [target], [*points, outcome])
        widths.append(_half_width(posterior.interval))
    return float(np.mean(widths))


def _half_width(interval: PredictionInterval) -> float:
    low, high = interval.bounds(np.ones(1))
    return float((high - low)[0] / 2)
