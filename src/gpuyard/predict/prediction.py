"""A prediction: one configuration's step in parts, its throughput with an interval, and its choke. From a scenario
and placements, all of them through one table."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine, precision_words
from gpuyard.predict.constants import Constant
from gpuyard.predict.interval import reach_of
from gpuyard.predict.scenario import PlatformScenario, scenario_of
from gpuyard.predict.stacks.measured import (
    base_words,
    measured_points,
    points_words,
    rates,
    updated,
)
from gpuyard.predict.stacks.posterior import Posterior, framework_words
from gpuyard.predict.table import (
    Configurations,
    Move,
    Placement,
    Step,
    StepParts,
    StepTable,
    samples_per_second,
    step_parts,
)
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    Cluster,
    ExchangeOptions,
    Precision,
    StrategyName,
    Workload,
)
from gpuyard.specs.workload import GradientDtype
from gpuyard.units import format_bytes

Choke = Literal["gpu", "network", "pcie", "storage", "host", "none"]
_PARTS: tuple[Choke, ...] = ("gpu", "network", "pcie", "storage", "host")
# where doubling any single part shortens the step by less than this, nothing is the choke
_LEAST_GAIN = 0.05
_ONE_GPU = Placement(1, 1, 1)
_SATURATED = 0.9  # of the samples/s that the largest batch would bring


@dataclass(frozen=True)
class Unmeasured:
    """What would be predicted without any figure of several GPUs."""

    samples_per_second: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """What one configuration would do."""

    gpus: int
    nodes: int
    gpus_per_node: int
    batch_per_gpu: int
    strategy: StrategyName
    samples_per_second: float
    low: float
    high: float
    scaling_efficiency: float
    step: Step
    choke: Choke
    epoch_seconds: float | None  # None: the workload has no dataset
    training_seconds: float | None  # all of the workload's epochs
    memory_bytes: float
    fits: bool | None  # None: nobody knows how much memory there is
    accumulate: int = 1
    local_sgd: int = 1
    compress: str | None = None
    bucket_bytes: float | None = None  # None: the framework's own
    hierarchical: bool = False
    beside: int = 0  # equal jobs on the same machines
    precision: Precision = "fp32"
    moves: tuple[Move, ...] = ()  # what crosses a GPU's link in one step
    epoch_bytes: float | None = None  # all of it, in all steps of an epoch
    before: Unmeasured | None = None  # where figures of several GPUs entered

    @property
    def placement(self) -> Placement:
        return Placement(self.gpus, self.nodes, self.gpus_per_node)


@dataclass(frozen=True)
class ClusterPrediction:
    """All that was asked about one workload on one cluster, and what it stands on."""

    workload: str
    cluster: str
    compute_basis: str
    predictions: tuple[Prediction, ...]
    constants: tuple[Constant, ...]
    precision: Precision = "fp32"
    precision_note: str = ""  # why this one, and what it means on this GPU
    # from which batch on one GPU does at least 90 % of what it does at any; None: from the first
    saturating_batch: int | None = None
    points: int = 0  # figures of several GPUs that entered
    point_sources: tuple[str, ...] = ()  # where they are from, each once
    framework_note: str = ""  # what is known of the framework that the workload names
    gradient_dtype: GradientDtype = "fp32"  # in which gradients cross the network
    gradient_note: str = ""  # who says so, where it is not as usual
    base_note: str = ""  # why the figure of one GPU is in doubt
    memory_note: str = ""  # which batch does not fit, and which would
    points_note: str = ""  # which figures of several GPUs contradict each other or are not used
    peer_note: str = ""  # that GPUs of a machine exchange through its host, where its file says so

    @property
    def single_gpu_speed(self) -> str:
        """What compute stands on, in words."""
        basis, _, source = self.compute_basis.partition(": ")
        if basis == "roofline":
            return source.replace("estimated", "roofline estimate", 1)
        return f"{basis} ({source})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def predict_cluster(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    gpus: Sequence[int],
    *,
    batches: Sequence[int] = (),
    strategy: StrategyName = DEFAULT_STRATEGY,
    gpus_per_node: int | None = None,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    other_jobs: int = 0,
    calibration: Calibration | None = None,
) -> ClusterPrediction:
    """Predict a workload on a described cluster, with as many equal jobs beside it on its machines."""
    scenario = scenario_of(
        workload,
        profile,
        cluster,
        strategy=strategy,
        exchange=exchange,
        other_jobs=other_jobs,
        calibration=calibration,
    )
    return predict(scenario, scenario.platform.placements(gpus, gpus_per_node), batches)


def predict(
    scenario: PlatformScenario, placements: Sequence[Placement], batches: Sequence[int] = ()
) -> ClusterPrediction:
    """Predict every placement × batch; without batches, at the workload's own."""
    _check(scenario, placements)
    platform, workload, exchange = scenario.platform, scenario.workload, scenario.exchange
    batches = tuple(batches) or (workload.batch_per_gpu,)
    spots = [(placement, batch) for placement in placements for batch in batches]
    table = scenario.table(Configurations.of(spots))
    unshared = replace(scenario, platform=platform.unshared or platform)
    alone = unshared.table(Configurations.of([(_ONE_GPU, batch) for _, batch in spots]))
    parts = step_parts(table)
    gpus = np.array([placement.gpus for placement, _ in spots], dtype=float)
    throughput = gpus * table.batch_per_gpu / parts.step_seconds
    efficiency = throughput / (gpus * samples_per_second(alone))
    reach = reach_of(table, parts, scenario.line.relative_uncertainty, platform.link_basis)
    low, high = reach.ends(throughput)
    chokes = _chokes(table, parts)
    steps = [parts.at(row) for row in range(len(spots))]
    before: list[Unmeasured | None] = [None] * len(spots)
    known = updated(scenario, spots, Posterior(np.log(parts.step_seconds), reach))
    if known is not None:
        before = [Unmeasured(*map(float, row)) for row in zip(throughput, low, high, strict=True)]
        found, alone_rate = known
        throughput = rates(found, spots)
        low, high = found.reach.ends(throughput)
        efficiency = throughput / (gpus * alone_rate)
        steps = [
            step.lasting(float(n * b / rate))
            for step, n, b, rate in zip(steps, gpus, table.batch_per_gpu, throughput, strict=True)
        ]
    memory = scenario.strategy.memory_bytes(
        workload, scenario.profile, exchange, batch_per_gpu=table.batch_per_gpu, gpus=gpus
    )
    samples = workload.dataset.samples if workload.dataset else None
    share = scenario.strategy.sent_share(workload, exchange)
    sent_bytes = share * scenario.buckets.total_bytes / exchange.period
    moves = [
        scenario.strategy.moves(scenario.profile, placement.gpus, batch, sent_bytes)
        for placement, batch in spots
    ]
    predictions = tuple(
        Prediction(
            gpus=placement.gpus,
            nodes=placement.nodes,
            gpus_per_node=placement.gpus_per_node,
            batch_per_gpu=batch,
            strategy=cast("StrategyName", scenario.strategy.name),
            samples_per_second=float(throughput[i]),
            low=float(low[i]),
            high=float(high[i]),
            scaling_efficiency=float(efficiency[i]),
            step=steps[i],
            choke=chokes[i],
            epoch_seconds=samples / float(throughput[i]) if samples else None,
            training_seconds=workload.epochs * samples / float(throughput[i]) if samples else None,
            memory_bytes=float(memory[i]),
            fits=None
            if platform.memory_bytes is None
            else bool(memory[i] <= platform.memory_bytes),
            accumulate=exchange.accumulate,
            local_sgd=exchange.local_sgd,
            compress=exchange.compress,
            bucket_bytes=exchange.bucket_bytes,
            hierarchical=exchange.hierarchical,
            beside=platform.other_jobs,
            precision=scenario.precision,
            moves=moves[i],
            epoch_bytes=_epoch_bytes(moves[i], samples, placement.gpus * batch),
            before=before[i],
        )
        for i, (placement, batch) in enumerate(spots)
    )
    line, points = scenario.line, measured_points(scenario)
    return ClusterPrediction(
        workload.name,
        platform.name,
        f"{line.basis}: {line.source}",
        predictions,
        scenario.constants,
        scenario.precision,
        precision_words(scenario.gpu, workload, scenario.profile),
        saturating_batch=_saturating(scenario.line),
        points=len(points),
        point_sources=tuple(dict.fromkeys(point.source for point in points)),
        framework_note=framework_words(scenario),
        gradient_dtype=scenario.strategy.sent_dtype(workload, exchange),
        gradient_note=scenario.strategy.gradient_words(workload, exchange),
        base_note=base_words(workload, scenario.profile, scenario.gpu),
        memory_note=_memory_words(scenario, predictions),
        points_note=points_words(scenario),
        peer_note=_peer_words(scenario, placements),
    )


def _peer_words(scenario: PlatformScenario, placements: Sequence[Placement]) -> str:
    """That `peer_to_peer: false` counted: not where links were measured or read from the machine itself."""
    platform = scenario.platform
    alone = all(placement.gpus_per_node == 1 for placement in placements)
    seen = scenario.graph is not None or platform.link_basis != "assumed link"
    if alone or seen or scenario.cluster is None or machine_of(scenario.cluster)[1].peer_to_peer:
        return ""
    return (
        f"Peer to peer: off in the machines of {platform.name}, as its file says: their GPUs exchange through the "
        "host's memory, and NVLink carries nothing."
    )


def _memory_words(scenario: PlatformScenario, predictions: Sequence[Prediction]) -> str:
    """Of the smallest batch that does not fit, and what would."""
    unfit = [p for p in predictions if p.fits is False]
    if not unfit or scenario.platform.memory_bytes is None:
        return ""
    smallest = min(unfit, key=lambda p: (p.batch_per_gpu, -p.gpus))
    most = scenario.largest_batch(smallest.gpus)
    return (
        f"A batch of {smallest.batch_per_gpu} does not fit: it needs {format_bytes(smallest.memory_bytes)} of a GPU's "
        f"{format_bytes(scenario.platform.memory_bytes)}; "
        + (f"up to {most} would fit (--batch {most})." if most else "not even one sample fits.")
    )


def _epoch_bytes(moves: Sequence[Move], samples: int | None, batch: int) -> float | None:
    """In all steps of an epoch, of which the last may be smaller but moves as much."""
    if samples is None or not moves:
        return None
    return -(-samples // batch) * sum(move.size_bytes for move in moves)


def _saturating(line: ComputeLine) -> int | None:
    """Where what no batch changes is a tenth of a step."""
    batch = math.ceil(_SATURATED / (1 - _SATURATED) * line.fixed_seconds / line.seconds_per_sample)
    return batch if batch > 1 else None


def _check(scenario: PlatformScenario, placements: Sequence[Placement]) -> None:
    platform, strategy = scenario.platform, scenario.strategy
    jobs = platform.other_jobs + 1
    for each in (placement.gpus_per_node for placement in placements):
        if jobs * each > platform.gpus_per_node:
            many = "1 GPU" if each == 1 else f"{each} GPUs"
            raise UserMistake(
                f"{jobs} jobs of {many} a machine need {jobs * each}; "
                f"each machine has {platform.gpus_per_node}"
            )
    most = strategy.most_machines
    if most is not None and any(placement.nodes > most for placement in placements):
        raise UserMistake(
            f"{strategy.why_no_more_machines}; {platform.name} has {platform.gpus_per_node} GPUs "
            "a machine, more need ddp or horovod"
        )


def _chokes(table: StepTable, parts: StepParts) -> list[Choke]:
    """The part whose doubling in speed would shorten the step most."""
    gains = np.stack(
        [1 - step_parts(table.doubled(part)).step_seconds / parts.step_seconds for part in _PARTS]
    )
    best = np.argmax(gains, axis=0)
    return [_PARTS[b] if gains[b, i] >= _LEAST_GAIN else "none" for i, b in enumerate(best)]
