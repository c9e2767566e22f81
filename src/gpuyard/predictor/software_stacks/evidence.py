"""Evidence about a scenario's software stack: multi-GPU figures, calibration runs, and the workload's framework.

The module updates predictions with the evidence and describes figures that are contradictory, implausible, or unused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.published_rows import MAX_SUPERLINEAR
from gpuyard.predictor.compute import resolve_figure_precision
from gpuyard.predictor.interval import PredictionInterval, estimate_interval
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.platform import find_network
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.software_stacks.posterior import (
    Posterior,
    PredictionPoints,
    compute_posterior,
    describe_framework,
    has_published_framework,
    load_prior,
    predict_with_framework,
    widen_to_cover,
)
from gpuyard.predictor.table import Configurations, Floats, compute_step_parts, samples_per_second
from gpuyard.predictor.transport import create_fabric
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    KnownThroughput,
    Precision,
    Workload,
)

_NETWORK_TOLERANCE = 0.05  # people round network rates
_SINGLE_GPU = Placement(1, 1, 1)
# Runs of one configuration differ by a few percent; a larger ratio means different trainings.
_MAX_REPEAT_RATIO = 1.1
# Factor beyond either end of the interval for any stack. No published row is beyond twice an end.
_OUTLIER_FACTOR = 3.0
_MAX_NAMED_FIGURES = 3
Configuration = tuple[Placement, int]


@dataclass(frozen=True)
class Point:
    """One measured multi-GPU figure."""

    placement: Placement
    batch_per_gpu: int
    samples_per_second: float
    source: str = ""

    @property
    def configuration(self) -> Configuration:
        return self.placement, self.batch_per_gpu

    @property
    def log_seconds(self) -> float:
        return float(np.log(self.placement.gpus * self.batch_per_gpu / self.samples_per_second))


@dataclass(frozen=True)
class EvidenceNotes:
    """The notes on evidence that a `ClusterPrediction` shows."""

    points: int = 0
    point_sources: tuple[str, ...] = ()
    framework_note: str = ""
    base_note: str = ""
    points_note: str = ""


def describe_evidence(scenario: PlatformScenario) -> EvidenceNotes:
    points = find_measured_points(scenario)
    return EvidenceNotes(
        points=len(points),
        point_sources=tuple(dict.fromkeys(point.source for point in points)),
        framework_note=describe_framework(scenario),
        base_note=describe_superlinear_figures(scenario.workload, scenario.profile, scenario.gpu),
        points_note=describe_measured_points(scenario),
    )


def find_measured_points(scenario: PlatformScenario) -> tuple[Point, ...]:
    """Find the multi-GPU figures for this GPU and precision that these machines could reproduce."""
    gpu, workload, profile = scenario.gpu, scenario.workload, scenario.profile
    if gpu is None:
        return ()
    platform = scenario.platform
    own_points = [
        Point(
            _spread_evenly(figure.gpus, figure.nodes),
            figure.batch_per_gpu,
            figure.samples_per_second,
            figure.source or "the workload",
        )
        for figure in workload.measured
        if figure.gpus > 1 and not find_exclusion_reason(figure, scenario)
    ]
    calibrated = [
        Point(
            Placement(run.workers, 1, run.workers),
            run.batch_per_worker,
            run.samples_per_second,
            "the calibration",
        )
        for entry in (scenario.calibration.hardware if scenario.calibration else ())
        if (entry.device, entry.processor) == ("cuda", gpu.id)
        for run in entry.points
        if (run.model, run.gradient_bytes) == (workload.model_name, profile.gradient_bytes)
        and (run.precision, run.strategy) == (scenario.precision, scenario.strategy.name)
        and run.workers <= platform.gpus_per_node
    ]
    covered = {point.configuration for point in own_points}
    return (*own_points, *(point for point in calibrated if point.configuration not in covered))


def find_exclusion_reason(figure: KnownThroughput, scenario: PlatformScenario) -> str:
    """Return why a multi-GPU figure does not apply to these machines, or an empty string if it does."""
    platform = scenario.platform
    if scenario.gpu is None or figure.gpu != scenario.gpu.id:
        return "another GPU"
    if not _is_on_same_network(figure, scenario):
        return "on another network"
    precision = resolve_figure_precision(
        figure.gpu, figure.precision, scenario.workload, scenario.profile
    )
    if precision != scenario.precision:
        return f"in {precision}, not {scenario.precision}"
    gpus_per_node = _spread_evenly(figure.gpus, figure.nodes).gpus_per_node
    if gpus_per_node > platform.gpus_per_node:
        return f"{gpus_per_node} GPUs per machine, but these have {platform.gpus_per_node}"
    if figure.nodes > 1 and platform.between is None:
        return "on several machines, but these have no network"
    return ""


def _is_on_same_network(figure: KnownThroughput, scenario: PlatformScenario) -> bool:
    network = find_network(scenario.cluster) if scenario.cluster else None
    if figure.nodes == 1 or figure.network is None or network is None:
        return True
    wire_bytes_per_second = create_fabric(network)[0].wire_bytes_per_second
    return abs(figure.network / wire_bytes_per_second - 1) < _NETWORK_TOLERANCE


def describe_superlinear_figures(
    workload: Workload, profile: ModelProfile, gpu: Gpu | None = None
) -> str:
    """Warn if several GPUs were measured faster per GPU than one alone.

    Then the single-GPU figure is in doubt, and with it every prediction based on it. The check covers one kind of
    GPU, or all kinds if `gpu` is None.
    """

    def training(figure: KnownThroughput) -> tuple[str, int, Precision]:
        precision = resolve_figure_precision(figure.gpu, figure.precision, workload, profile)
        return figure.gpu, figure.batch_per_gpu, precision

    ratios = [
        (several.samples_per_second / several.gpus / alone.samples_per_second, several, alone)
        for alone in workload.single_gpu_measurements
        for several in workload.measured
        if several.gpus > 1 and (gpu is None or gpu.id == alone.gpu)
        if training(several) == training(alone)
    ]
    if not ratios:
        return ""
    ratio, several, alone = max(ratios, key=lambda each: each[0])
    if ratio <= MAX_SUPERLINEAR:
        return ""
    return (
        f"Caveat: {several.gpus} × {alone.gpu} were measured {100 * (ratio - 1):.0f}% faster each than one alone at a "
        f"batch of {alone.batch_per_gpu}. Either one GPU then waits for its input (dataset.input_workers), or its "
        "figure is from another setup: measure it again."
    )


def _spread_evenly(gpus: int, nodes: int) -> Placement:
    return Placement(gpus, nodes, -(-gpus // nodes))


def condition_on_points(
    scenario: PlatformScenario, configurations: Sequence[Configuration], points: Sequence[Point]
) -> Posterior:
    """Predict configurations given measured points.

    If figures of one configuration differ, their middle counts, and the interval covers the cases that the slowest
    or the fastest of them is right. No interval becomes wider than that for any stack.
    """
    # Figures come from the strategy's defaults, on machines that no other job used.
    plain = replace(
        scenario,
        exchange=DEFAULT_EXCHANGE,
        platform=scenario.platform.unshared or scenario.platform,
    )
    same_training = scenario.exchange == DEFAULT_EXCHANGE and not scenario.platform.other_jobs
    groups = _group_by_configuration(points)
    logs = [[point.log_seconds for point in members] for members in groups.values()]
    table = scenario.build_table(Configurations.from_pairs(configurations))
    targets = PredictionPoints.from_table(table, "as measured" if same_training else "otherwise")
    measured = PredictionPoints.from_table(
        plain.build_table(Configurations.from_pairs(list(groups))), "as measured"
    )
    parts = compute_step_parts(table)
    compute_sigma = scenario.line.relative_uncertainty
    any_stack = estimate_interval(table, parts, compute_sigma, scenario.platform.link_basis)

    def condition(log_seconds: Sequence[float]) -> Posterior:
        prior = load_prior(scenario.workload.framework)
        posterior = compute_posterior(
            targets, measured, np.array(log_seconds), compute_sigma, prior
        )
        log_lead = posterior.log_seconds - np.log(parts.step_seconds)
        return Posterior(posterior.log_seconds, posterior.interval.limit_width(any_stack, log_lead))

    middle = condition([(max(group) + min(group)) / 2 for group in logs])
    if all(len(group) == 1 for group in logs):
        return middle
    extremes = [condition([extreme(group) for group in logs]) for extreme in (min, max)]
    return widen_to_cover(middle, extremes)


def _group_by_configuration(points: Sequence[Point]) -> dict[Configuration, list[Point]]:
    groups: dict[Configuration, list[Point]] = {}
    for point in points:
        groups.setdefault(point.configuration, []).append(point)
    return groups


def update_prediction(
    scenario: PlatformScenario, configurations: Sequence[Configuration], formulas: Posterior
) -> tuple[Posterior, Floats] | None:
    """Update the formulas' prediction with multi-GPU figures or with the framework.

    Return the posterior and the samples per second of one GPU at each batch, or None if there is no evidence. A
    single GPU that was itself measured keeps its figure.
    """
    points = find_measured_points(scenario)
    single_gpu = [(_SINGLE_GPU, batch) for _, batch in configurations]
    plain = replace(scenario, platform=scenario.platform.unshared or scenario.platform)
    is_single = np.array([placement.gpus == 1 for placement, _ in configurations])
    if points:
        posterior = condition_on_points(scenario, configurations, points)
        if scenario.line.basis != "measured":
            single_rates = posterior_rates(
                condition_on_points(plain, single_gpu, points), single_gpu
            )
            return posterior, single_rates
        interval, before = posterior.interval, formulas.interval
        posterior = Posterior(
            np.where(is_single, formulas.log_seconds, posterior.log_seconds),
            PredictionInterval(
                np.where(is_single, before.slow, interval.slow),
                np.where(is_single, before.fast, interval.fast),
            ),
        )
    elif has_published_framework(scenario.workload) and scenario.gpu is not None:
        posterior = predict_with_framework(
            scenario.build_table(Configurations.from_pairs(configurations)),
            np.exp(formulas.log_seconds),
            formulas.interval,
            scenario.line.relative_uncertainty,
            str(scenario.workload.framework),
        )
    else:
        return None
    return posterior, samples_per_second(plain.build_table(Configurations.from_pairs(single_gpu)))


def posterior_rates(posterior: Posterior, configurations: Sequence[Configuration]) -> Floats:
    """Return the expected samples per second of each configuration."""
    samples = np.array([placement.gpus * batch for placement, batch in configurations])
    return np.asarray(samples / np.exp(posterior.log_seconds))


def ratio_to_formulas(scenario: PlatformScenario, placements: Sequence[Placement]) -> Floats:
    """Return the expected rate as a share of what the formulas predict: 1 without evidence."""
    batch = scenario.workload.batch_per_gpu
    configurations = [(placement, batch) for placement in placements]
    table = scenario.build_table(Configurations.from_pairs(configurations))
    parts = compute_step_parts(table)
    interval = estimate_interval(table, parts, scenario.line.relative_uncertainty)
    update = update_prediction(
        scenario, configurations, Posterior(np.log(parts.step_seconds), interval)
    )
    if update is None:
        return np.ones(len(configurations))
    return np.asarray(parts.step_seconds / np.exp(update[0].log_seconds))


def describe_measured_points(scenario: PlatformScenario) -> str:
    """Describe figures that contradict each other, are implausible, or are unused."""
    if scenario.gpu is None:
        return ""
    groups = _group_by_configuration(find_measured_points(scenario))
    sentences = [
        _describe_contradiction(configuration, points)
        for configuration, points in groups.items()
        if _contradict(points)
    ]
    sentences += [
        _describe_outlier(scenario, configuration, points)
        for configuration, points in groups.items()
    ]
    unused = [
        f"{figure.gpus} × {figure.gpu}: {reason}"
        for figure in scenario.workload.measured
        if figure.gpus > 1 and (reason := find_exclusion_reason(figure, scenario))
    ]
    if unused:
        more = len(unused) - _MAX_NAMED_FIGURES
        named = "; ".join(unused[:_MAX_NAMED_FIGURES]) + (f"; and {more} more" if more > 0 else "")
        sentences.append(f"Measured figures not used: {named}.")
    return " ".join(filter(None, sentences))


def _contradict(points: list[Point]) -> bool:
    rates = [point.samples_per_second for point in points]
    return max(rates) > _MAX_REPEAT_RATIO * min(rates)


def _describe_outlier(
    scenario: PlatformScenario, configuration: Configuration, points: list[Point]
) -> str:
    """Warn about a figure that no software explains: probably a typo, another unit, or another batch."""
    plain = replace(
        scenario,
        exchange=DEFAULT_EXCHANGE,
        platform=scenario.platform.unshared or scenario.platform,
    )
    table = plain.build_table(Configurations.from_pairs([configuration]))
    interval = estimate_interval(
        table, compute_step_parts(table), scenario.line.relative_uncertainty
    )
    low, high = (float(bound[0]) for bound in interval.bounds(samples_per_second(table)))
    for point in points:
        rate = point.samples_per_second
        if not low / _OUTLIER_FACTOR <= rate <= high * _OUTLIER_FACTOR:
            return (
                f"Caveat: {_describe_configuration(configuration)} were measured at {_format_rate(rate)} samples/s, "
                f"but any software is expected to reach {_format_rate(low)} to {_format_rate(high)}: check the figure, "
                "its unit, and its batch."
            )
    return ""


def _describe_configuration(configuration: Configuration) -> str:
    placement, batch = configuration
    nodes = "1 node" if placement.nodes == 1 else f"{placement.nodes} nodes"
    return f"{placement.gpus} GPUs on {nodes} at a batch of {batch}"


def _describe_contradiction(configuration: Configuration, points: list[Point]) -> str:
    rates = [point.samples_per_second for point in points]
    return (
        f"Caveat: {_describe_configuration(configuration)} were measured at {_format_rate(min(rates))} and at "
        f"{_format_rate(max(rates))} samples/s. The interval covers both; measure again, and keep the figure of the "
        "training in question."
    )


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
