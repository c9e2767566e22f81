"""What a workload's figures of several GPUs, or calibrated runs, say about a scenario; and which run to do next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.compute import figure_precision
from gpuyard.predict.interval import Reach, reach_of
from gpuyard.predict.prediction import Prediction, step_parts
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.grid import frameworks, prior, step_seconds
from gpuyard.predict.stacks.posterior import Posterior, Spots, posterior
from gpuyard.predict.table import Floats, Placement, Rows
from gpuyard.specs import DEFAULT_EXCHANGE

_OUTCOMES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a run that nobody has done yet
_LEAST_NARROWER = 0.85  # of the interval as it is; a run that leaves more is not worth a sentence
Spot = tuple[Placement, int]


@dataclass(frozen=True)
class Point:
    """One measured figure of several GPUs."""

    placement: Placement
    batch_per_gpu: int
    samples_per_second: float

    @property
    def log_seconds(self) -> float:
        return float(np.log(self.placement.gpus * self.batch_per_gpu / self.samples_per_second))


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
    def sentence(self) -> str:
        many = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        where = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return (
            f"One run would narrow the answer for {self.for_gpus} GPUs most: {many} on {where} with a batch of "
            f"{self.batch_per_gpu} for a minute, ±{100 * self.width_now:.0f} % → ±{100 * self.width_after:.0f} %; "
            "put its samples/s under the workload's 'measured'."
        )


def measured_points(scenario: PlatformScenario) -> tuple[Point, ...]:
    """Those on this GPU and in this precision, as far as these machines could be used so."""
    gpu, workload, profile = scenario.gpu, scenario.workload, scenario.profile
    if gpu is None:
        return ()
    given = [
        Point(_placement(known.gpus, known.nodes), known.batch_per_gpu, known.samples_per_second)
        for known in workload.measured
        if known.gpus > 1
        and known.gpu == gpu.id
        and figure_precision(known.gpu, known.precision, workload, profile) == scenario.precision
    ]
    calibrated = [
        Point(Placement(run.workers, 1, run.workers), run.batch_per_worker, run.samples_per_second)
        for entry in (scenario.calibration.hardware if scenario.calibration else ())
        if (entry.device, entry.processor) == ("cuda", gpu.id)
        for run in entry.points
        if (run.model, run.gradient_bytes) == (workload.model, profile.gradient_bytes)
        and (run.precision, run.strategy) == (scenario.precision, scenario.strategy.name)
    ]
    platform = scenario.platform
    return tuple(
        point
        for point in (*given, *calibrated)
        if point.placement.gpus_per_node <= platform.gpus_per_node
        and (point.placement.nodes == 1 or platform.between is not None)
    )


def described(scenario: PlatformScenario) -> bool:
    """Whether its framework is named and something was published of it."""
    return scenario.workload.framework in frameworks() and scenario.gpu is not None


def framework_words(scenario: PlatformScenario) -> str:
    """What is known of the framework that the workload names: a sentence, or nothing where it names none."""
    named = scenario.workload.framework
    if named is None:
        return ""
    if described(scenario):
        return f"Framework: {named}, predicted by what was published of it."
    return (
        f"Framework: nothing was published of {named} that is known here, so the interval is that of any stack; "
        f"known are {', '.join(frameworks())}."
    )


def _placement(gpus: int, nodes: int) -> Placement:
    return Placement(gpus, nodes, -(-gpus // nodes))


def with_points(
    scenario: PlatformScenario, spots: Sequence[Spot], points: Sequence[Point]
) -> Posterior:
    """What is expected of configurations now that some were measured."""
    # figures are of the strategy as it is by default, on machines that nobody else used
    plain = replace(
        scenario,
        exchange=DEFAULT_EXCHANGE,
        platform=scenario.platform.unshared or scenario.platform,
    )
    same = scenario.exchange == DEFAULT_EXCHANGE and not scenario.platform.beside
    return posterior(
        _spots(scenario, spots, "as measured" if same else "otherwise"),
        _spots(plain, [(point.placement, point.batch_per_gpu) for point in points], "as measured"),
        np.array([point.log_seconds for point in points]),
        scenario.line.relative_uncertainty,
        prior(scenario.workload.framework),
    )


def _spots(scenario: PlatformScenario, spots: Sequence[Spot], training: str) -> Spots:
    table = scenario.table(Rows.of(spots))
    return Spots(
        table.gpus,
        table.nodes,
        table.batch_per_gpu,
        np.log(step_seconds(table)),
        (training,) * len(spots),
    )


def next_run(scenario: PlatformScenario, wanted: Prediction) -> NextRun | None:
    """For one prediction, the run of fewer GPUs that would narrow it most; None where none does much."""
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
        table = known.table(Rows.of([spot]))
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


def rates(found: Posterior, spots: Sequence[Spot]) -> Floats:
    """Samples a second."""
    return np.array([p.gpus * b for p, b in spots]) / np.exp(found.log_seconds)
