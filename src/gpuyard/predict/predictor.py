"""From workload × platform × placements to predictions, through one vectorised table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.predict import constants as c
from gpuyard.predict.buckets import pack
from gpuyard.predict.calibration.applied import calibrated_line, calibrated_platform
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.constants import Constant
from gpuyard.predict.fabric import Pipe
from gpuyard.predict.placement import Placement, place
from gpuyard.predict.platform import Platform, machine_of
from gpuyard.predict.prediction import Choke, ClusterPrediction, Prediction, Step
from gpuyard.predict.relief import Relief, reliefs
from gpuyard.predict.step import Configurations, Floats, StepParts, Traffic, doubled, step_parts
from gpuyard.predict.tuning import spread
from gpuyard.specs import Cluster, Strategy, Workload

_PARTS: tuple[Choke, ...] = ("gpu", "network", "pcie", "storage", "host")
# where doubling any single part shortens the step by less than this, nothing is the choke
_LEAST_GAIN = 0.05
_REACH = spread().factor  # makes 90 % of the published rows fall inside


@dataclass(frozen=True)
class Question:
    """What is to be predicted for one workload on one platform."""

    placements: tuple[Placement, ...]
    batches: tuple[int, ...]
    strategy: Strategy = "ddp"


def predict_cluster(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    gpus: Sequence[int],
    *,
    batches: Sequence[int] = (),
    strategy: Strategy = "ddp",
    gpus_per_node: int | None = None,
    calibration: Calibration | None = None,
) -> ClusterPrediction:
    """Predict a workload on a described cluster."""
    gpu, _ = machine_of(cluster)
    platform = calibrated_platform(cluster, calibration)
    placements = tuple(
        place(count, platform.nodes, platform.gpus_per_node, gpus_per_node) for count in gpus
    )
    question = Question(placements, tuple(batches) or (workload.batch_per_gpu,), strategy)
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
    overlap = overlap or platform.overlap(question.strategy)
    variation = platform.constant(variation)
    rows = [(placement, batch) for placement in question.placements for batch in question.batches]
    _check(platform, question)
    between = c.default_overlap_between(question.strategy) if default else overlap
    traffic = _traffic(
        workload, profile, question.strategy, (overlap, between), variation, platform=platform
    )
    table = _table(platform, line, rows, profile, question.strategy)
    alone = _table(
        platform, line, [(Placement(1, 1, 1), b) for _, b in rows], profile, question.strategy
    )
    parts = step_parts(table, traffic)
    gpus = np.array([placement.gpus for placement, _ in rows], dtype=float)
    throughput = gpus * table.batch_per_gpu / parts.step_seconds
    single = alone.batch_per_gpu / step_parts(alone, traffic).step_seconds
    sigma = relative_uncertainty(table, parts, line.relative_uncertainty, platform.link_basis)
    chokes = _chokes(table, traffic, parts)
    memory = [memory_needed_bytes(profile, workload, batch) for _, batch in rows]
    samples = workload.dataset.samples if workload.dataset else None
    predictions = tuple(
        Prediction(
            gpus=placement.gpus,
            nodes=placement.nodes,
            gpus_per_node=placement.gpus_per_node,
            batch_per_gpu=batch,
            strategy=question.strategy,
            samples_per_second=float(throughput[i]),
            low=float(throughput[i] / (1 + _REACH * sigma[i])),
            high=float(throughput[i] * (1 + _REACH * sigma[i])),
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
        )
        for i, (placement, batch) in enumerate(rows)
    )
    exchange = map(platform.constant, c.exchange_constants(question.strategy))
    used = (*line.constants, *platform.constants, *exchange, overlap, between, variation)
    return ClusterPrediction(
        workload.name, platform.name, f"{line.basis}: {line.source}", predictions, used
    )


def configurations(
    workload: Workload,
    profile: ModelProfile,
    platform: Platform,
    line: ComputeLine,
    rows: Sequence[tuple[Placement, int]],
    *,
    strategy: Strategy,
    overlap: Constant | None = None,
    variation: Constant = c.GPU_VARIATION,
) -> tuple[Configurations, Traffic]:
    """The table that the step model reckons with, one row a placement and batch, and its traffic."""
    between = overlap or c.default_overlap_between(strategy)
    inside = overlap or platform.overlap(strategy)
    variation = platform.constant(variation)
    traffic = _traffic(workload, profile, strategy, (inside, between), variation, platform=platform)
    return _table(platform, line, rows, profile, strategy), traffic


def relieve(
    workload: Workload,
    profile: ModelProfile,
    platform: Platform,
    line: ComputeLine,
    prediction: Prediction,
    *,
    overlap: Constant | None = None,
    variation: Constant = c.GPU_VARIATION,
) -> tuple[Relief, ...]:
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
        overlap=overlap,
        variation=variation,
    )

    def fits(batch: int) -> bool:
        needed = memory_needed_bytes(profile, workload, batch)
        return platform.memory_bytes is None or needed <= platform.memory_bytes

    return reliefs(table, traffic, prediction.gpus, fits)


def _check(platform: Platform, question: Question) -> None:
    if question.strategy == "dataparallel" and any(p.nodes > 1 for p in question.placements):
        raise UserMistake(
            "DataParallel is one process in one machine; "
            f"{platform.name} has {platform.gpus_per_node} GPUs a machine, more need ddp or horovod"
        )


def _traffic(
    workload: Workload,
    profile: ModelProfile,
    strategy: Strategy,
    overlaps: tuple[Constant, Constant],
    variation: Constant,
    *,
    platform: Platform,
) -> Traffic:
    stored = workload.dataset.bytes_per_sample if workload.dataset else None
    return Traffic(
        strategy=strategy,
        buckets=pack(profile, strategy),
        input_bytes_per_sample=profile.input_bytes,
        storage_bytes_per_sample=profile.input_bytes if stored is None else stored,
        overlap=overlaps[0].value,
        overlap_between=overlaps[1].value,
        backward_share=platform.constant(c.BACKWARD_SHARE).value,
        variation=variation.value,
        launch_seconds=platform.constant(c.LAUNCH).value,
    )


def _table(
    platform: Platform,
    line: ComputeLine,
    rows: Sequence[tuple[Placement, int]],
    profile: ModelProfile,
    strategy: Strategy,
) -> Configurations:
    count = len(rows)

    def column(value: float | None) -> Floats:
        return np.full(count, np.inf if value is None else value)

    host_to_gpu = platform.host_to_gpu_bytes_per_second or (lambda _: np.inf)
    inside = [platform.inside(placement.gpus_per_node) for placement, _ in rows]
    between = [_between(platform, placement.nodes) for placement, _ in rows]
    several = np.array([placement.nodes > 1 for placement, _ in rows])
    per_gpu_overhead = (
        len(profile.layers) * c.DATA_PARALLEL_HOST.value if strategy == "dataparallel" else 0.0
    )
    gpus_per_node = np.array([placement.gpus / placement.nodes for placement, _ in rows])
    return Configurations(
        nodes=np.array([placement.nodes for placement, _ in rows], dtype=float),
        gpus_per_node=gpus_per_node,
        batch_per_gpu=np.array([batch for _, batch in rows], dtype=float),
        fixed_seconds=column(line.fixed_seconds),
        seconds_per_sample=column(line.seconds_per_sample),
        inside_bytes_per_second=np.array([pipe.bytes_per_second for pipe in inside]),
        inside_latency_seconds=np.array([pipe.latency_seconds for pipe in inside]),
        between_bytes_per_second=np.array([pipe.bytes_per_second for pipe in between]),
        between_latency_seconds=np.array([pipe.latency_seconds for pipe in between]),
        copies_share=np.where(several & platform.tcp, 1.0, 0.0),
        host_to_gpu_bytes_per_second=np.array([host_to_gpu(p.gpus_per_node) for p, _ in rows]),
        storage_bytes_per_second=column(platform.storage_bytes_per_second),
        host_overhead_seconds=np.where(gpus_per_node > 1, per_gpu_overhead * gpus_per_node, 0.0),
    )


def _between(platform: Platform, nodes: int) -> Pipe:
    if nodes == 1:
        return Pipe(np.inf, 0.0, "one machine")
    if platform.between is None:
        raise ValueError("placements on several nodes need a network")
    return platform.between(nodes)


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
    contributions = (
        (parts.compute_seconds, compute),
        (parts.exposed_communication_seconds, c.UNCERTAINTY[link_basis]),
        (parts.input_seconds, c.UNCERTAINTY["input"]),
        (parts.straggler_seconds, c.UNCERTAINTY["straggling"]),
        (several, c.UNCERTAINTY["more machines"]),
    )
    variance = sum(
        ((seconds * relative / parts.step_seconds) ** 2 for seconds, relative in contributions),
        start=np.zeros_like(parts.compute_seconds),
    )
    return np.asarray(np.sqrt(variance))


def memory_needed_bytes(profile: ModelProfile, workload: Workload, batch: int) -> float:
    """Weights, gradients and one momentum in fp32, and the activations kept for backward."""
    width = 1.0 if workload.precision in ("fp32", "tf32") else 0.5
    return 3.0 * profile.gradient_bytes + batch * width * profile.activation_bytes
