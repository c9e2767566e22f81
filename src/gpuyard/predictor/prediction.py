"""A prediction: the parts of one configuration's step, its throughput with an interval, and its choke.

All placements of a scenario are predicted from one table.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.predictor.compute import ComputeLine, describe_precision
from gpuyard.predictor.interval import estimate_interval
from gpuyard.predictor.knee import find_knee, list_knee_placements
from gpuyard.predictor.placement import Move, Placement
from gpuyard.predictor.predicted import (
    CHOKE_PARTS,
    Choke,
    ClusterPrediction,
    Prediction,
    UncalibratedPrediction,
    describe_memory,
    describe_memory_use,
    describe_peer_access,
)
from gpuyard.predictor.scenario import PlatformScenario, create_scenario
from gpuyard.predictor.strategies.base import resolve_optimizer
from gpuyard.predictor.table import (
    Configurations,
    StepParts,
    StepTable,
    compute_step_parts,
    samples_per_second,
)
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    Cluster,
    ExchangeOptions,
    StrategyName,
    Workload,
)

if TYPE_CHECKING:
    from gpuyard.predictor.calibration.document import Calibration

# if doubling the speed of any single part shortens the step by less than this, there is no choke
_MIN_GAIN = 0.05
_SINGLE_GPU = Placement(1, 1, 1)
_SATURATED_GAIN = (
    0.1  # a saturated GPU gains less than this share of samples/s from twice the batch
)


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
    calibration: "Calibration | None" = None,
) -> ClusterPrediction:
    """Predict a workload on a described cluster that `other_jobs` identical jobs share."""
    scenario = create_scenario(
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
    """Predict every placement at every batch, or at the workload's own batch if none is given."""
    _check_placements(scenario, placements)
    platform, workload, exchange = scenario.platform, scenario.workload, scenario.exchange
    batches = tuple(batches) or (workload.batch_per_gpu,)
    configurations = [(placement, batch) for placement in placements for batch in batches]
    table = scenario.build_table(Configurations.from_pairs(configurations))
    unshared = replace(scenario, platform=platform.unshared or platform)
    alone = unshared.build_table(
        Configurations.from_pairs([(_SINGLE_GPU, batch) for _, batch in configurations])
    )
    parts = compute_step_parts(table)
    gpus = np.array([placement.gpus for placement, _ in configurations], dtype=float)
    throughput = gpus * table.batch_per_gpu / parts.step_seconds
    efficiency = throughput / (gpus * samples_per_second(alone))
    interval = estimate_interval(
        table, parts, scenario.line.relative_uncertainty, platform.link_basis
    )
    low, high = interval.bounds(throughput)
    chokes = _apply_knees(scenario, configurations, _find_chokes(table, parts), parts)
    steps = [parts.get_step(row) for row in range(len(configurations))]
    before: list[UncalibratedPrediction | None] = [None] * len(configurations)
    notes: dict[str, Any] = {}
    if workload.measured or workload.framework or scenario.calibration:
        from gpuyard.predictor.software_stacks import evidence, posterior

        notes = vars(evidence.describe_evidence(scenario))
        formulas = posterior.Posterior(np.log(parts.step_seconds), interval)
        update = evidence.update_prediction(scenario, configurations, formulas)
        if update is not None:
            before = [
                UncalibratedPrediction(*map(float, row))
                for row in zip(throughput, low, high, strict=True)
            ]
            updated, single_gpu_rate = update
            throughput = evidence.posterior_rates(updated, configurations)
            low, high = updated.interval.bounds(throughput)
            efficiency = throughput / (gpus * single_gpu_rate)
            seconds = gpus * table.batch_per_gpu / throughput
            steps = [step.stretch_to(float(s)) for step, s in zip(steps, seconds, strict=True)]
    memory = scenario.strategy.memory_bytes(
        workload, scenario.profile, exchange, batch_per_gpu=table.batch_per_gpu, gpus=gpus
    )
    samples = workload.dataset.samples if workload.dataset else None
    share = scenario.strategy.sent_share(workload, exchange)
    sent_bytes = share * scenario.buckets.total_bytes / exchange.period
    moves = [
        scenario.strategy.list_moves(scenario.profile, placement.gpus, batch, sent_bytes)
        for placement, batch in configurations
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
            other_jobs=platform.other_jobs,
            precision=scenario.precision,
            moves=moves[i],
            epoch_bytes=_epoch_bytes(moves[i], samples, placement.gpus * batch),
            exchange_seconds=float(parts.communication_seconds[i]) / exchange.period,
            before=before[i],
        )
        for i, (placement, batch) in enumerate(configurations)
    )
    line = scenario.line
    return ClusterPrediction(
        workload.name,
        platform.name,
        f"{line.basis}: {line.source}",
        predictions,
        scenario.constants,
        scenario.precision,
        describe_precision(scenario.gpu, workload, scenario.profile),
        saturating_batch=_find_saturating_batch(scenario.line),
        gradient_dtype=scenario.strategy.resolve_sent_dtype(workload, exchange),
        gradient_note=scenario.strategy.describe_gradients(workload, exchange),
        memory_note=describe_memory(scenario, predictions),
        peer_note=describe_peer_access(scenario, placements),
        evidence_note=line.caveat,
        optimizer=resolve_optimizer(workload, scenario.profile),
        memory_use_note=describe_memory_use(scenario, predictions),
        **notes,
    )


def _epoch_bytes(moves: Sequence[Move], samples: int | None, batch: int) -> float | None:
    """Return the bytes moved in an epoch; its last step may be smaller but moves as much."""
    if samples is None or not moves:
        return None
    return -(-samples // batch) * sum(move.size_bytes for move in moves)


def _find_saturating_batch(line: ComputeLine) -> int | None:
    """Return the smallest batch from which twice the batch gains too little.

    With r the fixed seconds over those of a sample, twice the batch B gains 2(B + r)/(2B + r) − 1.
    """
    fixed_samples = line.fixed_seconds / line.seconds_per_sample
    batch = math.ceil((1 - _SATURATED_GAIN) / (2 * _SATURATED_GAIN) * fixed_samples)
    return batch if batch > 1 else None


def _check_placements(scenario: PlatformScenario, placements: Sequence[Placement]) -> None:
    platform, strategy = scenario.platform, scenario.strategy
    jobs = platform.other_jobs + 1
    for gpus_per_node in (placement.gpus_per_node for placement in placements):
        if jobs * gpus_per_node > platform.gpus_per_node:
            gpus = "1 GPU" if gpus_per_node == 1 else f"{gpus_per_node} GPUs"
            raise UserMistake(
                f"{jobs} jobs with {gpus} per machine need {jobs * gpus_per_node} GPUs; "
                f"each machine has {platform.gpus_per_node}"
            )
    limit = strategy.max_machines
    if limit is not None and any(placement.nodes > limit for placement in placements):
        raise UserMistake(
            f"{strategy.machine_limit_reason}; {platform.name} has {platform.gpus_per_node} GPUs "
            "per machine. For more GPUs, use ddp or horovod"
        )


def _apply_knees(
    scenario: PlatformScenario,
    configurations: Sequence[tuple[Placement, int]],
    chokes: list[Choke],
    parts: StepParts,
) -> list[Choke]:
    """Replace GPUs as the choke past the knee, where added ones gain too little."""
    curves = {
        row: [
            smaller
            for smaller in list_knee_placements(placement.nodes, placement.gpus_per_node)
            if smaller.gpus < placement.gpus
        ]
        + [placement]
        for row, ((placement, _), choke) in enumerate(zip(configurations, chokes, strict=True))
        if choke == "gpu" and placement.gpus > 1
    }
    if not curves:
        return chokes
    pairs = [(place, configurations[row][1]) for row, curve in curves.items() for place in curve]
    rates = iter(samples_per_second(scenario.build_table(Configurations.from_pairs(pairs))))
    for row, curve in curves.items():
        counts = [placement.gpus for placement in curve]
        knee = find_knee(counts, np.array([next(rates) for _ in counts]))
        if not knee.is_past(counts[-1]):
            continue
        if parts.input_seconds[row] > parts.exposed_communication_seconds[row]:
            chokes[row] = "storage"
        else:
            chokes[row] = "network" if curve[-1].nodes > 1 else "pcie"
    return chokes


def _find_chokes(table: StepTable, parts: StepParts) -> list[Choke]:
    """Find, in each row, the part whose doubling in speed would shorten the step most."""
    gains = np.stack(
        [
            1 - compute_step_parts(table.double_speed(part)).step_seconds / parts.step_seconds
            for part in CHOKE_PARTS
        ]
    )
    best = np.argmax(gains, axis=0)
    return [CHOKE_PARTS[b] if gains[b, i] >= _MIN_GAIN else "none" for i, b in enumerate(best)]
