"""One workload's part of a study: what was measured, what is predicted, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.measure import Measurement
from gpuyard.measure.stored_figures import StoredRuns
from gpuyard.predict import (
    STRATEGIES,
    Calibration,
    ClusterPrediction,
    ComputeLine,
    Placement,
    PlatformScenario,
    Prediction,
    predict,
    scenario_of,
)
from gpuyard.predict.explain.knee import find_knee
from gpuyard.predict.explain.remedies import relieve, relieve_with_knees
from gpuyard.predict.explain.why import memory_shortage
from gpuyard.predict.stacks.next_run import next_run
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
    Alone,
    judge,
    measured_finding,
    predicted_finding,
    unfit_finding,
)
from gpuyard.units import counted, format_per_second

ASSUMED_SAMPLES = 10_000


@dataclass(frozen=True)
class StudyCase:
    """One workload, and what the study wants to know about it."""

    workload: Workload
    profile: ModelProfile
    batches: tuple[int, ...]  # measured here
    epoch_batches: tuple[int, ...]
    strategy: StrategyName  # of the runs here

    @property
    def batch(self) -> int:
        """The batch of the finding here: the workload's own, or the nearest that is measured."""
        return min(self.batches, key=lambda batch: abs(batch - self.workload.batch_per_gpu))

    @property
    def samples(self) -> int:
        return self.workload.dataset.samples if self.workload.dataset else ASSUMED_SAMPLES


@dataclass(frozen=True)
class OtherCluster:
    """A cluster that is not here, and what was predicted for it."""

    scenario: PlatformScenario
    predicted: ClusterPrediction

    @property
    def largest(self) -> Prediction:
        """The most GPUs that were asked about and that it fits into, if it does anywhere."""
        made = self.predicted.predictions
        fitting = [p for p in made if p.fits is not False]
        return max(fitting or made, key=lambda p: p.gpus)


def predict_elsewhere(
    case: StudyCase,
    cluster: Cluster,
    asked: StudyCluster,
    calibration: Calibration | None = None,
    stored: StoredRuns | None = None,
) -> OtherCluster:
    """Predict the scaling on a cluster that is not here, at its own batch or the workload's."""
    workload = case.workload
    if stored is not None:
        workload = stored.added_to(workload, case.profile, asked.strategy)
    scenario = scenario_of(
        workload,
        case.profile,
        cluster,
        strategy=asked.strategy,
        exchange=asked.exchange,
        calibration=calibration,
    )
    placements = scenario.platform.placements(asked.gpus or scenario.usual_counts())
    batches = () if asked.batch is None else (asked.batch,)
    return OtherCluster(scenario, predict(scenario, placements, batches))


def assemble(
    case: StudyCase,
    measurements: Sequence[Measurement],
    elsewhere: Sequence[OtherCluster],
    calibration: Calibration | None = None,
) -> WorkloadResult:
    """Put the evidence together and judge it."""
    findings: list[ChokeFinding] = []
    curves: list[PlatformCurve] = []
    epochs: list[EpochTime] = []
    if measurements:
        strategy = STRATEGIES[case.strategy]
        ran = _as_it_ran(case.workload, measurements)
        here = fit_this_machine(ran, case.profile, strategy, measurements, calibration)
        batches = sorted({case.batch, case.workload.batch_per_gpu})
        made = predict(here.scenario, here.placements, batches)
        curves.append(
            PlatformCurve(THIS_MACHINE, made.compute_basis, True, made.predictions, made.constants)
        )
        findings.append(_finding_here(case, measurements, here, made.predictions))
        epochs += _epochs_here(case, measurements, here)
    for other in elsewhere:
        made = other.predicted
        curves.append(
            PlatformCurve(made.cluster, made.compute_basis, False, made.predictions, made.constants)
        )
        findings.append(_finding_elsewhere(case, other))
        epochs += _epochs_elsewhere(case, other)
    workload, profile = case.workload, case.profile
    return WorkloadResult(
        name=workload.name,
        model=workload.model,
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
        measured=tuple(_point(m, measurements) for m in measurements),
        curves=tuple(curves),
        epoch_times=tuple(epochs),
        batch_per_gpu=workload.batch_per_gpu,
        open_choice=_open_choice(elsewhere),
    )


def _open_choice(elsewhere: Sequence[OtherCluster]) -> str | None:
    """Where the two clusters that are predicted fastest may be the other way round: that, and the run that would
    tell most. None: the fastest is the fastest at either end."""
    fitting = [other for other in elsewhere if other.largest.fits is not False]
    ranked = sorted(fitting, key=lambda other: -other.largest.samples_per_second)[:2]
    if len(ranked) < 2 or ranked[0].largest.low > ranked[1].largest.high:
        return None
    said = " and ".join(
        f"{other.predicted.cluster} with {counted(p.gpus, 'GPU')} "
        f"({format_per_second(p.low)} – {format_per_second(p.high)} samples/s)"
        for other in ranked
        for p in [other.largest]
    )
    runs = [(other, next_run(other.scenario, other.largest)) for other in ranked]
    told = [(other, run) for other, run in runs if run is not None]
    sentence = f"Which is faster is open: {said} overlap."
    if not told:
        return sentence
    other, run = max(told, key=lambda one: one[1].width_now - one[1].width_after)
    return f"{sentence} One run would tell most: on {other.predicted.cluster}, {run.words}."


def _as_it_ran(workload: Workload, measurements: Sequence[Measurement]) -> Workload:
    """Where a workload leaves the precision open, its runs say which it was."""
    precision = workload.precision or measurements[0].spec.get("precision")
    return workload.model_copy(update={"precision": precision})


def _finding_here(
    case: StudyCase,
    measurements: Sequence[Measurement],
    here: ThisMachine,
    curve: Sequence[Prediction],
) -> ChokeFinding:
    at_batch = [m for m in measurements if m.batch_per_worker == case.batch]
    credible = [m for m in at_batch if m.doubt is None]
    several = [m for m in credible if m.workers > 1]
    largest = max(several or at_batch, key=lambda m: m.workers)
    same = next(p for p in curve if p.gpus == largest.workers and p.batch_per_gpu == case.batch)
    alone = _alone(case, credible, here.scenario.line)
    rates = {m.workers: m.samples_per_second for m in (*credible, largest)}
    rates[1] = alone.samples_per_second
    counts = sorted(rates)
    return measured_finding(
        largest,
        alone,
        relieve(here.scenario, same),
        find_knee(counts, np.array([rates[count] for count in counts])),
        case.profile.gradient_bytes,
        doubt=largest.doubt or here.doubt,
    )


def _alone(case: StudyCase, at_batch: Sequence[Measurement], line: ComputeLine) -> Alone:
    for m in at_batch:
        if m.workers == 1:
            return Alone(m.samples_per_second, m.step.compute_seconds)
    seconds = line.fixed_seconds + case.batch * line.seconds_per_sample
    return Alone(case.batch / seconds, seconds)


def _finding_elsewhere(case: StudyCase, other: OtherCluster) -> ChokeFinding:
    name, largest = other.predicted.cluster, other.largest
    remedies, knees = relieve_with_knees(other.scenario, largest)
    if largest.fits is False:
        tried = other.scenario.with_batch(largest.batch_per_gpu)
        return unfit_finding(name, largest, remedies, memory_shortage(tried, largest.gpus))
    return predicted_finding(name, largest, remedies, knees.as_it_is, case.profile.gradient_bytes)


def _efficiency(measurement: Measurement, measurements: Sequence[Measurement]) -> float | None:
    """Samples/s over k times what one worker does at the same batch."""
    for other in measurements:
        if other.workers == 1 and other.batch_per_worker == measurement.batch_per_worker:
            return measurement.samples_per_second / (measurement.workers * other.samples_per_second)
    return None


def _point(m: Measurement, measurements: Sequence[Measurement]) -> MeasuredPoint:
    return MeasuredPoint(
        measurement_id=m.id,
        workers=m.workers,
        batch_per_worker=m.batch_per_worker,
        strategy=m.strategy,
        samples_per_second=m.samples_per_second,
        low=m.low,
        high=m.high,
        scaling_efficiency=_efficiency(m, measurements),
        compute_seconds=m.step.compute_seconds,
        exposed_communication_seconds=m.step.exposed_communication_seconds,
        input_seconds=m.step.input_seconds,
        doubt=m.doubt,
    )


def _epochs_here(
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


def _epochs_elsewhere(case: StudyCase, other: OtherCluster) -> list[EpochTime]:
    made = predict(other.scenario, [other.largest.placement], case.epoch_batches)
    return [
        EpochTime(
            made.cluster, p.gpus, p.batch_per_gpu, case.samples / p.samples_per_second, "predicted"
        )
        for p in made.predictions
        if p.fits is not False
    ]
