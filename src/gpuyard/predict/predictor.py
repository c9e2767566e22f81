"""From workload × platform × placements to predictions, through one vectorised table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.predict import constants as c
from gpuyard.predict.calibration.applied import calibrated_line, calibrated_platform
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.constants import Constant
from gpuyard.predict.explain.general import Remedy, reliefs
from gpuyard.predict.inputs import input_constants, variation_of
from gpuyard.predict.method import method_of
from gpuyard.predict.placement import Placement, place
from gpuyard.predict.platform.platform import Platform, machine_of
from gpuyard.predict.platform.sharing import shared
from gpuyard.predict.prediction import Choke, ClusterPrediction, Prediction, Step
from gpuyard.predict.step import Configurations, Floats, StepParts, Traffic, doubled, step_parts
from gpuyard.predict.tables import configurations, memory_needed_bytes, table_of, traffic_of
from gpuyard.predict.tuning import spread
from gpuyard.specs import DEFAULT_EXCHANGE, Cluster, ExchangeOptions, StrategyName, Workload

_PARTS: tuple[Choke, ...] = ("gpu", "network", "pcie", "storage", "host")
# where doubling any single part shortens the step by less than this, nothing is the choke
_LEAST_GAIN = 0.05


@dataclass(frozen=True)
class Question:
    """What is to be predicted for one workload on one platform."""

    placements: tuple[Placement, ...]
    batches: tuple[int, ...]
    strategy: StrategyName = "ddp"
    exchange: ExchangeOptions = DEFAULT_EXCHANGE


def predict_cluster(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    gpus: Sequence[int],
    *,
    batches: Sequence[int] = (),
    strategy: StrategyName = "ddp",
    gpus_per_node: int | None = None,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    beside: int = 0,
    calibration: Calibration | None = None,
) -> ClusterPrediction:
    """Predict a workload on a described cluster, with as many equal jobs beside it on its machines."""
    gpu, _ = machine_of(cluster)
    platform = shared(calibrated_platform(cluster, calibration), cluster, beside)
    placements = tuple(
        place(count, platform.nodes, platform.gpus_per_node, gpus_per_node) for count in gpus
    )
    question = Question(
        placements,
        tuple(batches) or (workload.batch_per_gpu,),
        strategy,
        exchange,
    )
    line = calibrated_line(workload, profile, gpu, calibration)
    return predict(workload, profile, platform, line, question)


def predict(
    workload: Workload,
    profile: ModelProfile,
    platform: Platform,
    line: ComputeLine,
    question: Question,
    *,
    overlap: Constant | None = None,
    variation: Constant = c.GPU_VARIATION,
) -> ClusterPrediction:
    """Predict every placement × batch."""
    default = overlap is None
    variation = variation_of(workload, platform.constant(variation))
    how = question.exchange
    method = method_of(profile, question.strategy, how, platform.gpu_memory_bytes_per_second)
    overlap = overlap or platform.overlap(question.strategy)
    rows = [(placement, batch) for placement in question.placements for batch in question.batches]
    _check(platform, question)
    between = c.default_overlap_between(question.strategy) if default else overlap
    traffic = traffic_of(
        workload,
        profile,
        question.strategy,
        method=method,
        overlaps=(overlap, between),
        variation=variation,
        disturbed=default,
        platform=platform,
    )
    table = table_of(
        workload, platform, line, rows, profile=profile, strategy=question.strategy, method=method
    )
    alone = table_of(
        workload,
        platform.unshared or platform,
        line,
        [(Placement(1, 1, 1), b) for _, b in rows],
        profile=profile,
        strategy=question.strategy,
        method=method,
    )
    parts = step_parts(table, traffic)
    gpus = np.array([placement.gpus for placement, _ in rows], dtype=float)
    throughput = gpus * table.batch_per_gpu / parts.step_seconds
    single = alone.batch_per_gpu / step_parts(alone, traffic).step_seconds
    sigma = relative_uncertainty(table, parts, line.relative_uncertainty, platform.link_basis)
    low, high = spread().ends(throughput, sigma)
    chokes = _chokes(table, traffic, parts)
    memory = [
        memory_needed_bytes(profile, workload, batch) + method.memory_bytes for _, batch in rows
    ]
    samples = workload.dataset.samples if workload.dataset else None
    predictions = tuple(
        Prediction(
            gpus=placement.gpus,
            nodes=placement.nodes,
            gpus_per_node=placement.gpus_per_node,
            batch_per_gpu=batch,
            strategy=question.strategy,
            samples_per_second=float(throughput[i]),
            low=float(low[i]),
            high=float(high[i]),
            scaling_efficiency=float(throughput[i] / (gpus[i] * single[i])),
            step=Step(
                compute_seconds=float(parts.compute_seconds[i]),
                exposed_communication_seconds=float(parts.exposed_communication_seconds[i]),
                input_seconds=float(parts.input_seconds[i]),
                straggler_seconds=float(parts.straggler_seconds[i]),
            ),
            choke=chokes[i],
            epoch_seconds=samples / float(throughput[i]) if samples else None,
            training_seconds=workload.epochs * samples / float(throughput[i]) if samples else None,
            memory_bytes=memory[i],
            fits=None if platform.memory_bytes is None else memory[i] <= platform.memory_bytes,
            accumulate=how.accumulate,
            local_sgd=how.local_sgd,
            compress=how.compress,
            bucket_bytes=how.bucket_bytes,
            hierarchical=how.hierarchical,
            beside=platform.beside,
        )
        for i, (placement, batch) in enumerate(rows)
    )
    exchange = map(platform.constant, c.exchange_constants(question.strategy))
    disturbance = c.slowdown_constants(question.strategy) if default else ()
    used = (*line.constants, *platform.constants, *exchange, overlap, between, variation,
            *disturbance, *input_constants(workload, platform))  # fmt: skip
    return ClusterPrediction(
        workload.name, platform.name, f"{line.basis}: {line.source}", predictions, used
    )


def relieve(
    workload: Workload,
    profile: ModelProfile,
    platform: Platform,
    line: ComputeLine,
    prediction: Prediction,
    *,
    overlap: Constant | None = None,
    variation: Constant = c.GPU_VARIATION,
) -> tuple[Remedy, ...]:
    """What would help one predicted configuration."""
    strategy = prediction.strategy
    placement = Placement(prediction.gpus, prediction.nodes, prediction.gpus_per_node)
    rows = [(placement, prediction.batch_per_gpu)]
    table, traffic = configurations(
        workload,
        profile,
        platform,
        line,
        rows,
        strategy=strategy,
        exchange=prediction.exchange,
        overlap=overlap,
        variation=variation,
    )

    def fits(batch: int) -> bool:
        needed = memory_needed_bytes(profile, workload, batch)
        return platform.memory_bytes is None or needed <= platform.memory_bytes

    return reliefs(table, traffic, prediction.gpus, fits)


def _check(platform: Platform, question: Question) -> None:
    jobs = platform.beside + 1
    for each in (placement.gpus_per_node for placement in question.placements):
        if jobs * each > platform.gpus_per_node:
            many = "1 GPU" if each == 1 else f"{each} GPUs"
            raise UserMistake(
                f"{jobs} jobs of {many} a machine need {jobs * each}; "
                f"each machine has {platform.gpus_per_node}"
            )
    if question.strategy == "dataparallel" and any(p.nodes > 1 for p in question.placements):
        raise UserMistake(
            "DataParallel is one process in one machine; "
            f"{platform.name} has {platform.gpus_per_node} GPUs a machine, more need ddp or horovod"
        )


def _chokes(table: Configurations, traffic: Traffic, parts: StepParts) -> list[Choke]:
    """The part whose doubling in speed would shorten the step most."""
    gains = np.stack(
        [
            1 - step_parts(doubled(table, part), traffic).step_seconds / parts.step_seconds
            for part in _PARTS
        ]
    )
    best = np.argmax(gains, axis=0)
    return [_PARTS[b] if gains[b, i] >= _LEAST_GAIN else "none" for i, b in enumerate(best)]


def relative_uncertainty(
    table: Configurations, parts: StepParts, compute: float | Floats, link_basis: str
) -> Floats:
    """σ of the step, from the σ of each part; the parts are taken as independent."""
    several = np.where(table.nodes > 1, parts.step_seconds, 0.0)
    exposed, waited = parts.exposed_communication_seconds, parts.straggler_seconds
    exchange: tuple[tuple[Floats, float | Floats], ...]
    if link_basis == "assumed link":
        share = (exposed + waited) / parts.step_seconds
        exchange = ((parts.step_seconds, spread().of_exchange(share, table.nodes > 1)),)
    else:
        exchange = ((exposed, c.UNCERTAINTY[link_basis]), (waited, spread().exchange_inside))
    contributions: tuple[tuple[Floats, float | Floats], ...] = (
        (parts.compute_seconds, compute),
        *exchange,
        (parts.input_seconds, c.UNCERTAINTY["input"]),
        (several, c.UNCERTAINTY["more machines"]),
    )
    variance = sum(
        ((seconds * relative / parts.step_seconds) ** 2 for seconds, relative in contributions),
        start=np.zeros_like(parts.compute_seconds),
    )
    return np.asarray(np.sqrt(variance))
