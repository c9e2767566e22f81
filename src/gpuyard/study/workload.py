"""One workload's part of a study: its measurements, predictions, and verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.measure.stored_figures import StoredRuns
from gpuyard.measure.training.records import Measurement
from gpuyard.predictor import (
    STRATEGIES,
    ClusterPrediction,
    ComputeLine,
    Placement,
    PlatformScenario,
    Prediction,
    create_scenario,
    predict,
)
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.explain.next_run import find_next_run
from gpuyard.predictor.explain.remedies import find_remedies, find_remedies_and_knees
from gpuyard.predictor.explain.why import describe_memory_shortage
from gpuyard.predictor.knee import find_knee
from gpuyard.specs import Cluster, StrategyName, Workload
from gpuyard.specs.study import StudyCluster
from gpuyard.study.result import (
    Basis,
    ChokeFinding,
    EpochTime,
    MeasuredPoint,
    PlatformCurve,
    WorkloadResult,
)
from gpuyard.study.this_machine import THIS_MACHINE, ThisMachine, fit_this_machine
from gpuyard.study.verdict import (
    SingleWorker,
    build_measured_finding,
    build_predicted_finding,
    build_unfit_finding,
    judge,
)
from gpuyard.units import format_count, format_per_second

ASSUMED_SAMPLES = 10_000


@dataclass(frozen=True)
class StudyCase:
    """One workload with its batches and strategy."""

    workload: Workload
    profile: ModelProfile
    batches: tuple[int, ...]  # to measure here
    epoch_batches: tuple[int, ...]
    strategy: StrategyName  # for the runs here

    @property
    def batch(self) -> int:
        """The batch of the finding on this machine: the measured one nearest to the workload's own."""
        return min(self.batches, key=lambda batch: abs(batch - self.workload.batch_per_gpu))

    @property
    def samples(self) -> int:
        return self.workload.dataset.samples if self.workload.dataset else ASSUMED_SAMPLES


@dataclass(frozen=True)
class PredictedCluster:
    """Another cluster and its predictions."""

    scenario: PlatformScenario
    predicted: ClusterPrediction

    @property
    def largest(self) -> Prediction:
        """The prediction with the most GPUs that fits into memory, or with the most if none fits."""
        predictions = self.predicted.predictions
        fitting = [p for p in predictions if p.fits is not False]
        return max(fitting or predictions, key=lambda p: p.gpus)


def predict_on_cluster(
    case: StudyCase,
    cluster: Cluster,
    entry: StudyCluster,
    calibration: Calibration | None = None,
    stored: StoredRuns | None = None,
) -> PredictedCluster:
    """Predict the scaling on another cluster, at its own batch or the workload's."""
    workload = case.workload
    if stored is not None:
        workload = stored.add_figures(workload, case.profile, entry.strategy)
    scenario = create_scenario(
        workload,
        case.profile,
        cluster,
        strategy=entry.strategy,
        exchange=entry.exchange,
        calibration=calibration,
    )
    placements = scenario.platform.placements(entry.gpus or scenario.default_gpu_counts())
    batches = () if entry.batch is None else (entry.batch,)
    return PredictedCluster(scenario, predict(scenario, placements, batches))


def assemble_result(
    case: StudyCase,
    measurements: Sequence[Measurement],
    clusters: Sequence[PredictedCluster],
    calibration: Calibration | None = None,
) -> WorkloadResult:
    """Combine measurements and predictions into one result with a verdict."""
    findings: list[ChokeFinding] = []
    curves: list[PlatformCurve] = []
    epochs: list[EpochTime] = []
    if measurements:
        strategy = STRATEGIES[case.strategy]
        workload = _set_precision(case.workload, measurements)
        here = fit_this_machine(workload, case.profile, strategy, measurements, calibration)
        batches = sorted({case.batch, case.workload.batch_per_gpu})
        predicted = predict(here.scenario, here.placements, batches)
        curves.append(_build_curve(THIS_MACHINE, predicted, here=True))
        findings.append(_build_finding_here(case, measurements, here, predicted.predictions))
        epochs += _list_epochs_here(case, measurements, here)
    for cluster in clusters:
        curves.append(_build_curve(cluster.predicted.cluster, cluster.predicted, here=False))
        findings.append(_build_cluster_finding(case, cluster))
        epochs += _list_cluster_epochs(case, cluster)
    workload, profile = case.workload, case.profile
    return WorkloadResult(
        name=workload.name,
        model=workload.model_name,
        parameters=profile.parameters,
        gradient_bytes=profile.gradient_bytes,
        forward_flops=profile.forward_flops,
        precision=workload.precision
        or " or ".join(sorted({p.precision for curve in curves for p in curve.predictions}))
        or "PyTorch's default precision",
        samples_per_epoch=case.samples,
        samples_note="from the workload"
        if workload.dataset
        else "assumed: the workload has no dataset",
        data_source=measurements[0].provenance.data_source
        if measurements
        else "nothing was measured",
        verdict=judge(findings),
        measured=tuple(_build_point(m, measurements) for m in measurements),
        curves=tuple(curves),
        epoch_times=tuple(epochs),
        batch_per_gpu=workload.batch_per_gpu,
        open_choice=_describe_open_choice(clusters),
    )


def _build_curve(platform: str, predicted: ClusterPrediction, *, here: bool) -> PlatformCurve:
    return PlatformCurve(
        platform, predicted.compute_basis, here, predicted.predictions, predicted.constants
    )


def _describe_open_choice(clusters: Sequence[PredictedCluster]) -> str | None:
    """If the intervals of the two fastest clusters overlap, say so, and name the run that would decide."""
    fitting = [cluster for cluster in clusters if cluster.largest.fits is not False]
    ranked = sorted(fitting, key=lambda cluster: -cluster.largest.samples_per_second)[:2]
    if len(ranked) < 2 or ranked[0].largest.low > ranked[1].largest.high:
        return None
    described = " and ".join(
        f"{cluster.predicted.cluster} with {format_count(p.gpus, 'GPU')} "
        f"({format_per_second(p.low)} – {format_per_second(p.high)} samples/s)"
        for cluster in ranked
        for p in [cluster.largest]
    )
    sentence = f"Which is faster is uncertain, because the intervals of {described} overlap."
    candidates = [
        (cluster, run)
        for cluster in ranked
        if (run := find_next_run(cluster.scenario, cluster.largest)) is not None
    ]
    if not candidates:
        return sentence
    cluster, run = max(candidates, key=lambda pair: pair[1].width_now - pair[1].width_after)
    description = run.description[0].lower() + run.description[1:]
    return f"{sentence} On {cluster.predicted.cluster}, {description}."


def _set_precision(workload: Workload, measurements: Sequence[Measurement]) -> Workload:
    """Set the precision that the runs used if the workload leaves it open."""
    precision = workload.precision or measurements[0].spec.get("precision")
    return workload.model_copy(update={"precision": precision})


def _build_finding_here(
    case: StudyCase,
    measurements: Sequence[Measurement],
    here: ThisMachine,
    curve: Sequence[Prediction],
) -> ChokeFinding:
    at_batch = [m for m in measurements if m.batch_per_worker == case.batch]
    valid = [m for m in at_batch if m.doubt is None]
    several = [m for m in valid if m.workers > 1]
    largest = max(several or at_batch, key=lambda m: m.workers)
    prediction = next(
        p for p in curve if p.gpus == largest.workers and p.batch_per_gpu == case.batch
    )
    alone = _find_single_worker(case, valid, here.scenario.line)
    rates = {m.workers: m.samples_per_second for m in (*valid, largest)}
    rates[1] = alone.samples_per_second
    counts = sorted(rates)
    return build_measured_finding(
        largest,
        alone,
        find_remedies(here.scenario, prediction),
        find_knee(counts, np.array([rates[count] for count in counts])),
        case.profile.gradient_bytes,
        doubt=largest.doubt or here.doubt,
    )


def _find_single_worker(
    case: StudyCase, at_batch: Sequence[Measurement], line: ComputeLine
) -> SingleWorker:
    for m in at_batch:
        if m.workers == 1:
            return SingleWorker(m.samples_per_second, m.step.compute_seconds)
    seconds = line.fixed_seconds + case.batch * line.seconds_per_sample
    return SingleWorker(case.batch / seconds, seconds)


def _build_cluster_finding(case: StudyCase, cluster: PredictedCluster) -> ChokeFinding:
    name, largest = cluster.predicted.cluster, cluster.largest
    remedies, knees = find_remedies_and_knees(cluster.scenario, largest)
    if largest.fits is False:
        scenario = cluster.scenario.change_batch(largest.batch_per_gpu)
        shortage = describe_memory_shortage(scenario, largest.gpus)
        return build_unfit_finding(name, largest, remedies, shortage)
    return build_predicted_finding(
        name, largest, remedies, knees.current, case.profile.gradient_bytes
    )


def _calculate_efficiency(
    measurement: Measurement, measurements: Sequence[Measurement]
) -> float | None:
    """Divide the rate by k times the rate of one worker at the same batch, if that was measured."""
    for other in measurements:
        if other.workers == 1 and other.batch_per_worker == measurement.batch_per_worker:
            return measurement.samples_per_second / (measurement.workers * other.samples_per_second)
    return None


def _build_point(m: Measurement, measurements: Sequence[Measurement]) -> MeasuredPoint:
    return MeasuredPoint(
        measurement_id=m.id,
        workers=m.workers,
        batch_per_worker=m.batch_per_worker,
        strategy=m.strategy,
        samples_per_second=m.samples_per_second,
        low=m.low,
        high=m.high,
        scaling_efficiency=_calculate_efficiency(m, measurements),
        compute_seconds=m.step.compute_seconds,
        exposed_communication_seconds=m.step.exposed_communication_seconds,
        input_seconds=m.step.input_seconds,
        doubt=m.doubt,
    )


def _list_epochs_here(
    case: StudyCase, measurements: Sequence[Measurement], here: ThisMachine
) -> list[EpochTime]:
    epochs = [
        EpochTime(
            THIS_MACHINE,
            m.workers,
            m.batch_per_worker,
            case.samples / m.samples_per_second,
            "measured",
        )
        for m in measurements
    ]
    worker_counts = sorted({m.workers for m in measurements})
    placements = tuple(Placement(workers, 1, workers) for workers in worker_counts)
    for p in predict(here.scenario, placements, case.epoch_batches).predictions:
        seconds = case.samples / p.samples_per_second
        basis: Basis = "fitted" if p.gpus == worker_counts[0] else "predicted"
        epochs.append(EpochTime(THIS_MACHINE, p.gpus, p.batch_per_gpu, seconds, basis))
    return epochs


def _list_cluster_epochs(case: StudyCase, cluster: PredictedCluster) -> list[EpochTime]:
    predicted = predict(cluster.scenario, [cluster.largest.placement], case.epoch_batches)
    return [
        EpochTime(
            predicted.cluster,
            p.gpus,
            p.batch_per_gpu,
            case.samples / p.samples_per_second,
            "predicted",
        )
        for p in predicted.predictions
        if p.fits is not False
    ]
