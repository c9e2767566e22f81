"""Which single run would narrow a prediction most: what is smaller than the configuration in question, tried
in thought with every outcome that is likely."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.interval import Reach, reach_of
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.measured import Point, Spot, measured_points, with_points
from gpuyard.predict.table import Configurations, Placement, step_parts

_OUTCOMES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a run that nobody has done yet
_LEAST_NARROWER = 0.85  # of the interval as it is; a run that leaves more is not worth a sentence


@dataclass(frozen=True)
class NextRun:
    """The single run after which one answer would be surest."""

    gpus: int
    nodes: int
    batch_per_gpu: int
    for_gpus: int
    width_now: float  # half of the interval, as a share of the prediction
    width_after: float

    @property
    def words(self) -> str:
        many = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        where = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return (
            f"{many} on {where} with a batch of {self.batch_per_gpu} for a minute, "
            f"±{100 * self.width_now:.0f} % → ±{100 * self.width_after:.0f} %"
        )

    @property
    def sentence(self) -> str:
        return (
            f"One run would narrow the answer for {self.for_gpus} GPUs most: {self.words}; "
            "put its samples/s under the workload's 'measured'."
        )


def next_run(scenario: PlatformScenario, wanted: Prediction) -> NextRun | None:
    """For one prediction, the run of fewer GPUs that would narrow it most; None where none does much."""
    if wanted.fits is False:  # nor would the run
        return None
    if wanted.gpus == 1 or scenario.platform.link_basis != "assumed link":
        return None
    spot = (wanted.placement, wanted.batch_per_gpu)
    points = measured_points(scenario)
    done = {(point.placement, point.batch_per_gpu) for point in points}
    now = (wanted.high - wanted.low) / 2 / wanted.samples_per_second
    found = []
    for placement in _smaller(scenario, wanted):
        if (placement, wanted.batch_per_gpu) in done:
            continue
        width = _width_after(scenario, spot, points, placement)
        # of runs that are about as good, the one on fewer GPUs
        found.append((round(width, 2), placement.gpus, placement, width))
    if not found:
        return None
    _, _, best, width = min(found, key=lambda one: one[:2])
    if width > _LEAST_NARROWER * now:
        return None
    return NextRun(best.gpus, best.nodes, wanted.batch_per_gpu, wanted.gpus, now, width)


def _smaller(scenario: PlatformScenario, wanted: Prediction) -> list[Placement]:
    """One GPU where its speed is not known, and what is smaller than what is asked about."""
    platform = scenario.platform
    counts = [n for n in scenario.usual_counts() if 1 < n < wanted.gpus] or [wanted.gpus]
    alone = [] if scenario.line.basis in ("measured", "measured here") else [Placement(1, 1, 1)]
    return [*alone, *platform.placements([n for n in counts if n <= platform.gpus])]


def _width_after(
    scenario: PlatformScenario, spot: Spot, points: Sequence[Point], run: Placement
) -> float:
    """Of the interval, on average over what the run may show."""
    if run.gpus == 1:
        known = replace(scenario, line=replace(scenario.line, basis="measured"))
        if points:
            return _width(with_points(known, [spot], points).reach)
        table = known.table(Configurations.of([spot]))
        return _width(reach_of(table, step_parts(table), c.UNCERTAINTY["measured"]))
    batch = spot[1]
    there = with_points(scenario, [(run, batch)], points)
    middle = float(there.log_seconds[0])
    widths = []
    for level in _OUTCOMES:
        side = (level - 0.5) / 0.45  # of the way to an end
        reach = there.reach.slow[0] if side > 0 else there.reach.fast[0]
        seconds = np.exp(middle + side * float(reach))
        outcome = Point(run, batch, run.gpus * batch / float(seconds))
        widths.append(_width(with_points(scenario, [spot], [*points, outcome]).reach))
    return float(np.mean(widths))


def _width(reach: Reach) -> float:
    low, high = reach.ends(np.ones(1))
    return float((high - low)[0] / 2)
