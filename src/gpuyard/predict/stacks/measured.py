"""What a workload's figures of several GPUs, calibrated runs or its framework say about a scenario, and what is odd
about such figures: those that contradict each other, those that no software explains, and those that are not used."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.published_rows import MOST_SUPERLINEAR
from gpuyard.predict.compute import figure_precision
from gpuyard.predict.interval import Reach, reach_of
from gpuyard.predict.platform import network_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.stacks.posterior import (
    Posterior,
    Spots,
    described,
    posterior,
    prior,
    reaching_all,
    under_framework,
)
from gpuyard.predict.table import (
    Configurations,
    Floats,
    Placement,
    samples_per_second,
    step_parts,
)
from gpuyard.predict.transport import between_machines
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    KnownThroughput,
    Precision,
    Workload,
)

_SAME_NETWORK = 0.05  # rates are rounded when people say them
_ONE_GPU = Placement(1, 1, 1)
# runs of one configuration differ by some per cent; more than that, and they are not the same training
_APART = 1.1
# so many times beyond either end of the interval of any stack; of all published rows none is beyond it twice
_BEYOND = 3.0
_NAMED = 3
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
    middle is taken, and the interval reaches as far as if the slowest or the fastest of them were right. None is wider
    than for any stack."""
    # figures are of the strategy as it is by default, on machines that nobody else used
    plain = replace(
        scenario,
        exchange=DEFAULT_EXCHANGE,
        platform=scenario.platform.unshared or scenario.platform,
    )
    same = scenario.exchange == DEFAULT_EXCHANGE and not scenario.platform.other_jobs
    by_spot = by_configuration(points)
    logs = [[point.log_seconds for point in members] for members in by_spot.values()]
    wanted = _spots(scenario, spots, "as measured" if same else "otherwise")
    measured = _spots(plain, list(by_spot), "as measured")

    table = scenario.table(Configurations.of(spots))
    parts = step_parts(table)
    compute = scenario.line.relative_uncertainty
    any_stack = reach_of(table, parts, compute, scenario.platform.link_basis)

    def if_it_took(log_seconds: Sequence[float]) -> Posterior:
        known = prior(scenario.workload.framework)
        found = posterior(wanted, measured, np.array(log_seconds), compute, known)
        ahead = found.log_seconds - np.log(parts.step_seconds)
        return Posterior(found.log_seconds, found.reach.no_wider(any_stack, ahead))

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
    return Spots.of(scenario.table(Configurations.of(spots)), training)


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


def points_words(scenario: PlatformScenario) -> str:
    """A sentence or two, or nothing."""
    if scenario.gpu is None:
        return ""
    groups = by_configuration(measured_points(scenario))
    said = [_contradiction(spot, points) for spot, points in groups.items() if _apart(points)]
    said += [_beyond(scenario, spot, points) for spot, points in groups.items()]
    unused = [
        f"{known.gpus} × {known.gpu}: {reason}"
        for known in scenario.workload.measured
        if known.gpus > 1 and (reason := reason_against(known, scenario))
    ]
    if unused:
        more = len(unused) - _NAMED
        named = "; ".join(unused[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
        said.append(f"Not used of what was measured: {named}.")
    return " ".join(filter(None, said))


def _apart(points: list[Point]) -> bool:
    found = [point.samples_per_second for point in points]
    return max(found) > _APART * min(found)


def _beyond(scenario: PlatformScenario, spot: Spot, points: list[Point]) -> str:
    """Of a figure that is so far from what any software makes of these machines that it is more likely a slip of the
    pen, another unit or another batch."""
    alone = scenario.platform.unshared or scenario.platform
    table = replace(scenario, exchange=DEFAULT_EXCHANGE, platform=alone).table(
        Configurations.of([spot])
    )
    reach = reach_of(table, step_parts(table), scenario.line.relative_uncertainty)
    low, high = (float(end[0]) for end in reach.ends(samples_per_second(table)))
    for point in points:
        rate = point.samples_per_second
        if not low / _BEYOND <= rate <= high * _BEYOND:
            return (
                f"Caveat: {_where(spot)} were measured at {_short(rate)} samples/s, where {_short(low)} to {_short(high)} are "
                "expected of any software: check the figure, its unit and its batch."
            )
    return ""


def _where(spot: Spot) -> str:
    placement, batch = spot
    nodes = "1 node" if placement.nodes == 1 else f"{placement.nodes} nodes"
    return f"{placement.gpus} GPUs on {nodes} at a batch of {batch}"


def _contradiction(spot: Spot, points: list[Point]) -> str:
    found = [point.samples_per_second for point in points]
    return (
        f"Caveat: {_where(spot)} were measured at {_short(min(found))} and at "
        f"{_short(max(found))} samples/s. The interval reaches to both; measure again, and keep the figure of the training "
        "that you ask about."
    )


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
