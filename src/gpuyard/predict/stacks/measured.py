"""What a workload's figures of several GPUs, calibrated runs or its framework say about a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.published_rows import MOST_SUPERLINEAR
from gpuyard.errors import did_you_mean
from gpuyard.predict.compute import figure_precision
from gpuyard.predict.interval import Reach, reach_of
from gpuyard.predict.platform import network_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.posterior import (
    Posterior,
    Spots,
    frameworks,
    mixed,
    posterior,
    prior,
    reaching_all,
    step_seconds,
    unmeasured,
)
from gpuyard.predict.strategies import Strategy
from gpuyard.predict.table import (
    Configurations,
    Floats,
    Placement,
    StepTable,
    samples_per_second,
    step_parts,
)
from gpuyard.predict.transport import between_machines
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    ExchangeOptions,
    KnownThroughput,
    Precision,
    Workload,
)

_SAME_NETWORK = 0.05  # rates are rounded when people say them
_ONE_GPU = Placement(1, 1, 1)
Spot = tuple[Placement, int]


@dataclass(frozen=True)
class Point:
    """One measured figure of several GPUs."""

    placement: Placement
    batch_per_gpu: int
    samples_per_second: float
    source: str = ""

    def is_among(self, others: "Sequence[Point]") -> bool:
        """Whether one of them is of the same configuration."""
        mine = self.placement, self.batch_per_gpu
        return any((other.placement, other.batch_per_gpu) == mine for other in others)

    @property
    def log_seconds(self) -> float:
        return float(np.log(self.placement.gpus * self.batch_per_gpu / self.samples_per_second))


def measured_points(scenario: PlatformScenario) -> tuple[Point, ...]:
    """Those on this GPU and in this precision, as far as these machines could be used so."""
    gpu, workload, profile = scenario.gpu, scenario.workload, scenario.profile
    if gpu is None:
        return ()
    platform = scenario.platform
    given = [
        Point(
            _placement(known.gpus, known.nodes),
            known.batch_per_gpu,
            known.samples_per_second,
            known.source or "the workload",
        )
        for known in workload.measured
        if known.gpus > 1 and not reason_against(known, scenario)
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
        if (run.model, run.gradient_bytes) == (workload.model, profile.gradient_bytes)
        and (run.precision, run.strategy) == (scenario.precision, scenario.strategy.name)
        and run.workers <= platform.gpus_per_node
    ]
    return (*given, *(point for point in calibrated if not point.is_among(given)))


def reason_against(known: KnownThroughput, scenario: PlatformScenario) -> str:
    """Why a figure of several GPUs says nothing about these machines; nothing where it does."""
    platform = scenario.platform
    if scenario.gpu is None or known.gpu != scenario.gpu.id:
        return "another GPU"
    if not _on_this_network(known, scenario):
        return "on another network"
    precision = figure_precision(known.gpu, known.precision, scenario.workload, scenario.profile)
    if precision != scenario.precision:
        return f"in {precision}, not {scenario.precision}"
    each = _placement(known.gpus, known.nodes).gpus_per_node
    if each > platform.gpus_per_node:
        return f"{each} GPUs a machine, these have {platform.gpus_per_node}"
    if known.nodes > 1 and platform.between is None:
        return "on several machines, and nothing joins these"
    return ""


def _on_this_network(known: KnownThroughput, scenario: PlatformScenario) -> bool:
    network = network_of(scenario.cluster) if scenario.cluster else None
    if known.nodes == 1 or known.network is None or network is None:
        return True
    there = between_machines(network)[0].wire_bytes_per_second
    return abs(known.network / there - 1) < _SAME_NETWORK


def described(workload: Workload) -> bool:
    """Whether its framework is named and something was published of it."""
    return workload.framework in frameworks()


def framework_words(scenario: PlatformScenario) -> str:
    """What is known of the framework that the workload names: a sentence, or nothing where it names none."""
    named = scenario.workload.framework
    if named is None:
        return ""
    if described(scenario.workload) and scenario.gpu is not None:
        return f"Framework: {named}, predicted by what was published of it."
    return (
        f"Framework: nothing was published of {named} that is known here, so the interval is that of any stack; "
        f"known are {', '.join(frameworks())}{did_you_mean(named, frameworks()) or '.'}"
    )


def gradient_words(
    workload: Workload, strategy: Strategy, exchange: ExchangeOptions = DEFAULT_EXCHANGE
) -> str:
    """Who says how wide gradients are that cross the network: a sentence, or nothing where they are as usual."""
    sent = strategy.sent_dtype(workload, exchange)
    if (
        exchange.half
        or exchange.local_sgd > 1
        or (workload.gradient_dtype is None and sent == "fp32")
    ):
        return ""
    if workload.gradient_dtype is not None:
        return f"Gradients: sent as {sent}, as the workload says."
    return f"Gradients: sent as {sent}, as {workload.framework} does; 'gradient_dtype: fp32' if yours does not."


def base_words(workload: Workload, profile: ModelProfile, gpu: Gpu | None = None) -> str:
    """Where several GPUs were measured faster each than one alone, the figure of one is in doubt, and with it all that
    is predicted from it: a sentence, or nothing. Of one kind of GPU, or of any."""

    def training(known: KnownThroughput) -> tuple[str, int, Precision]:
        precision = figure_precision(known.gpu, known.precision, workload, profile)
        return known.gpu, known.batch_per_gpu, precision

    found = [
        (several.samples_per_second / several.gpus / alone.samples_per_second, several, alone)
        for alone in workload.measured_alone
        for several in workload.measured
        if several.gpus > 1 and (gpu is None or gpu.id == alone.gpu)
        if training(several) == training(alone)
    ]
    if not found:
        return ""
    faster, several, alone = max(found, key=lambda each: each[0])
    if faster <= MOST_SUPERLINEAR:
        return ""
    return (
        f"Caveat: {several.gpus} × {alone.gpu} were measured {100 * (faster - 1):.0f} % faster each than one alone at a "
        f"batch of {alone.batch_per_gpu}. One GPU then waits for its input (dataset.input_workers), or its figure is "
        "another set-up's: measure it again."
    )


def _placement(gpus: int, nodes: int) -> Placement:
    return Placement(gpus, nodes, -(-gpus // nodes))


def with_points(
    scenario: PlatformScenario, spots: Sequence[Spot], points: Sequence[Point]
) -> Posterior:
    """What is expected of configurations now that some were measured. Of figures of one configuration that differ, the
    middle is taken, and the interval reaches as far as if the slowest or the fastest of them were right."""
    # figures are of the strategy as it is by default, on machines that nobody else used
    plain = replace(
        scenario,
        exchange=DEFAULT_EXCHANGE,
        platform=scenario.platform.unshared or scenario.platform,
    )
    same = scenario.exchange == DEFAULT_EXCHANGE and not scenario.platform.other_jobs
    found = by_configuration(points)
    logs = [[point.log_seconds for point in members] for members in found.values()]
    wanted = _spots(scenario, spots, "as measured" if same else "otherwise")
    measured = _spots(plain, list(found), "as measured")

    def if_it_took(log_seconds: Sequence[float]) -> Posterior:
        return posterior(
            wanted,
            measured,
            np.array(log_seconds),
            scenario.line.relative_uncertainty,
            prior(scenario.workload.framework),
        )

    middle = if_it_took([(max(of) + min(of)) / 2 for of in logs])
    if all(len(of) == 1 for of in logs):
        return middle
    ends = [if_it_took([end(of) for of in logs]) for end in (min, max)]
    return reaching_all(middle, ends)


def by_configuration(points: Sequence[Point]) -> dict[Spot, list[Point]]:
    found: dict[Spot, list[Point]] = {}
    for point in points:
        found.setdefault((point.placement, point.batch_per_gpu), []).append(point)
    return found


def _spots(scenario: PlatformScenario, spots: Sequence[Spot], training: str) -> Spots:
    table = scenario.table(Configurations.of(spots))
    return Spots(
        table.gpus,
        table.nodes,
        table.batch_per_gpu,
        np.log(step_seconds(table)),
        (training,) * len(spots),
    )


def under_framework(
    table: StepTable, seconds: Floats, any_stack: Reach, compute: Floats | float, framework: str
) -> Posterior:
    """Steps by what was published of a framework, which says where in the interval of any stack they lie. One GPU
    exchanges nothing: it stays as it is."""
    variance = unmeasured(table.gpus, compute)
    found = mixed(np.log(step_seconds(table)), prior(framework), variance)
    reach = found.reach.within(any_stack, found.log_seconds - np.log(seconds))
    alone = table.gpus == 1
    return Posterior(
        np.where(alone, np.log(seconds), found.log_seconds),
        Reach(
            np.where(alone, any_stack.slow, reach.slow), np.where(alone, any_stack.fast, reach.fast)
        ),
    )


def updated(
    scenario: PlatformScenario, spots: Sequence[Spot], before: Posterior
) -> tuple[Posterior, Floats] | None:
    """What is expected now that figures of several GPUs or the framework are known, and what one GPU does at each
    batch, in samples a second. One GPU that was measured itself keeps its figure. None: nothing is known."""
    points = measured_points(scenario)
    ones = [(_ONE_GPU, batch) for _, batch in spots]
    plain = replace(scenario, platform=scenario.platform.unshared or scenario.platform)
    alone = np.array([placement.gpus == 1 for placement, _ in spots])
    if points:
        found = with_points(scenario, spots, points)
        if scenario.line.basis != "measured":
            return found, rates(with_points(plain, ones, points), ones)
        reach, was = found.reach, before.reach
        found = Posterior(
            np.where(alone, before.log_seconds, found.log_seconds),
            Reach(np.where(alone, was.slow, reach.slow), np.where(alone, was.fast, reach.fast)),
        )
    elif described(scenario.workload) and scenario.gpu is not None:
        found = under_framework(
            scenario.table(Configurations.of(spots)),
            np.exp(before.log_seconds),
            before.reach,
            scenario.line.relative_uncertainty,
            str(scenario.workload.framework),
        )
    else:
        return None
    return found, samples_per_second(plain.table(Configurations.of(ones)))


def rates(found: Posterior, spots: Sequence[Spot]) -> Floats:
    """Samples a second."""
    return np.array([p.gpus * b for p, b in spots]) / np.exp(found.log_seconds)


def against_formulas(scenario: PlatformScenario, placements: Sequence[Placement]) -> Floats:
    """What is expected, as a share of what the formulas say: 1 where nothing is known."""
    batch = scenario.workload.batch_per_gpu
    spots = [(placement, batch) for placement in placements]
    table = scenario.table(Configurations.of(spots))
    parts = step_parts(table)
    reach = reach_of(table, parts, scenario.line.relative_uncertainty)
    known = updated(scenario, spots, Posterior(np.log(parts.step_seconds), reach))
    if known is None:
        return np.ones(len(spots))
    return np.asarray(parts.step_seconds / np.exp(known[0].log_seconds))
