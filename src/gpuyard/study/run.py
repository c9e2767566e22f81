"""Runs a study: reads every spec first, then predicts, prices, measures, and judges."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpuyard.catalog.hardware import find_ends_of_life
from gpuyard.catalog.specfiles import read_plan, read_workload
from gpuyard.cpu import usable_cores
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.hardware.clusters import read_cluster, resolve_machine
from gpuyard.hardware.host import discover_host
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.stored_figures import StoredRuns
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import (
    create_sweep_meter,
    estimate_point_seconds,
    find_stored_keys,
    run_sweep,
)
from gpuyard.measure.training.size import estimate_needs
from gpuyard.measure.training.sweep import Sweep, SweepPoint
from gpuyard.planner import PlanResult, make_plan
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.constants import CALIBRATED
from gpuyard.specs import DEFAULT_STRATEGY, Cluster
from gpuyard.specs.study import MeasureHere, Study, StudyCluster, StudyWorkload
from gpuyard.study.cost import build_cost_result
from gpuyard.study.result import StudyResult, WorkloadResult
from gpuyard.study.workload import StudyCase, assemble_result, predict_on_cluster
from gpuyard.units import format_count, format_seconds
from gpuyard.version import __version__
from gpuyard.workloads import profile_model

_MAX_PAIRS, _MAX_PREDICTIONS = 200, 20_000
_MAX_DEFAULT_RUN_SECONDS = 120.0  # longer runs are skipped if the study's file has no 'measure'
_MAX_DOUBLINGS = 24  # from one GPU to the largest cluster that a file may describe


def run_study(
    study: Study,
    directory: Path,
    store: ResultsStore,
    *,
    on_progress: ProgressCallback = lambda _progress: None,
    fresh: bool = False,
    calibration: Calibration | None = None,
    stored: StoredRuns | None = None,
) -> StudyResult:
    """Run the whole study. Mistakes in any spec are found before anything is measured.

    Stored multi-GPU runs improve the predictions for other clusters.
    """
    _check_size(study)
    on_progress(ProgressUpdate("reading the specs"))
    cases = _read_cases(study, directory)
    clusters = _read_clusters(study, directory)
    predicted = [
        [
            predict_on_cluster(case, cluster, entry, calibration, stored)
            for cluster, entry in clusters
        ]
        for case in cases
    ]
    cost = build_cost_result(study.cost) if study.cost else None
    plan = _make_plan(study.plan, directory, calibration, stored) if study.plan else None
    cases, measured, notes = _measure(cases, study, store, on_progress=on_progress, fresh=fresh)
    results = [
        assemble_result(*parts, calibration)
        for parts in zip(cases, measured, predicted, strict=True)
    ]
    return StudyResult(
        name=study.name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpuyard_version=__version__,
        host=discover_host().summary,
        workloads=tuple(results),
        cost=cost,
        notes=tuple(
            notes
            + _note_synthetic_data(results)
            + _note_doubtful_runs(results)
            + _note_memory(results)
            + [
                end.sentence
                for end in find_ends_of_life(resolve_machine(cluster)[0] for cluster, _ in clusters)
            ]
            + _note_calibration(results)
        ),
        plan=plan,
    )


def _make_plan(
    file: str, directory: Path, calibration: Calibration | None, stored: StoredRuns | None
) -> PlanResult:
    path = directory / file
    figures = stored.add_figures if stored else None
    return make_plan(read_plan(path), path.parent, calibration, figures=figures)


def _read_case(entry: StudyWorkload | str, study: Study, directory: Path) -> StudyCase:
    if isinstance(entry, str):
        entry = StudyWorkload(workload=entry)
    workload = read_workload(entry.workload, directory)
    here = study.measure
    batches = entry.batch or (here.batch if here else (workload.batch_per_gpu,))
    strategy = here.strategy if here else DEFAULT_STRATEGY
    return StudyCase(workload, profile_model(workload), batches, study.epoch_batches, strategy)


def _check_size(study: Study) -> None:
    """Raise if the study has too many points; this needs none of the files that it names."""
    pairs = len(study.workloads) * len(study.clusters)
    if pairs > _MAX_PAIRS:
        raise UserMistake(
            f"{format_count(len(study.workloads), 'workload')} on {format_count(len(study.clusters), 'cluster')} are {pairs:,} "
            f"combinations; the maximum is {_MAX_PAIRS:,}"
        )
    doublings = len(study.epoch_batches) + _MAX_DOUBLINGS
    each = sum(
        doublings if entry.gpus is None else len(entry.gpus) + len(study.epoch_batches)
        for entry in study.clusters
    )
    if (count := len(study.workloads) * each) > _MAX_PREDICTIONS:
        raise UserMistake(
            f"the study has {count:,} points to predict; the maximum is {_MAX_PREDICTIONS:,}; shorten "
            "'gpus' of its clusters or 'epoch_batches'"
        )


def _read_cases(study: Study, directory: Path) -> list[StudyCase]:
    cases: dict[str, StudyCase] = {}
    for entry in study.workloads:
        case = _read_case(entry, study, directory)
        name = case.workload.name
        if name in cases:
            raise UserMistake(f"two workloads of the study are named {name!r}; rename one")
        cases[name] = case
    return list(cases.values())


def _read_clusters(study: Study, directory: Path) -> list[tuple[Cluster, StudyCluster]]:
    """Read each cluster; one that is used several times gets its options added to its name."""
    files = [entry.cluster for entry in study.clusters if isinstance(entry.cluster, str)]
    by_file = {file: read_cluster(file, directory) for file in dict.fromkeys(files)}
    clusters = [
        (by_file[entry.cluster] if isinstance(entry.cluster, str) else entry.cluster, entry)
        for entry in study.clusters
    ]
    names = Counter(cluster.name for cluster, _ in clusters)
    return [
        (
            cluster.model_copy(update={"name": f"{cluster.name} ({_describe_options(entry)})"})
            if names[cluster.name] > 1
            else cluster,
            entry,
        )
        for cluster, entry in clusters
    ]


def _describe_options(entry: StudyCluster) -> str:
    batch = () if entry.batch is None else (f"batch {entry.batch}",)
    return ", ".join((entry.strategy, *batch, *entry.exchange.descriptions))


def _measure(
    cases: Sequence[StudyCase],
    study: Study,
    store: ResultsStore,
    *,
    on_progress: ProgressCallback,
    fresh: bool,
) -> tuple[list[StudyCase], list[list[Measurement]], list[str]]:
    """Measure the cases; return them with the measured batches, their runs, and notes."""
    nothing: list[list[Measurement]] = [[] for _ in cases]
    here = study.measure
    if here is None:
        return (
            list(cases),
            nothing,
            ["This study measures nothing here: everything below is predicted."],
        )
    cores = len(usable_cores())
    workers = tuple(count for count in here.workers if count <= cores) or (1,)
    notes = []
    if workers != here.workers:
        left_out = ", ".join(str(count) for count in here.workers if count not in workers)
        notes.append(
            f"Not measured with {left_out} workers: this machine has {cores} usable cores."
        )
    here = here.model_copy(update={"workers": workers})
    try:
        sweeps = [_plan_case(case, here) for case in cases]
    except MissingRequirement as missing:
        return list(cases), nothing, [f"Nothing was measured on this machine: {missing}."]
    requested = "measure" in study.model_fields_set
    kept: list[Sweep] = []
    for case, sweep in zip(cases, sweeps, strict=True):
        stored_keys = set() if fresh else find_stored_keys(sweep, store)
        points, skipped = _select_points(case, sweep, stored_keys, requested=requested)
        kept.append(replace(sweep, points=points))
        notes += skipped
    for note in (*notes, *_announce_runs(kept, store, fresh=fresh)):
        on_progress(ProgressUpdate("measuring", message=note))
    meter = create_sweep_meter(kept)
    measured = [
        run_sweep(
            sweep,
            store,
            on_event=lambda event: on_progress(event.progress),
            fresh=fresh,
            meter=meter,
        )
        for sweep in kept
    ]
    on_progress(ProgressUpdate("predicting and pricing"))
    cases = [_set_batches(case, sweep) for case, sweep in zip(cases, kept, strict=True)]
    return cases, measured, notes


def _select_points(
    case: StudyCase, sweep: Sweep, stored_keys: Collection[str], *, requested: bool
) -> tuple[tuple[SweepPoint, ...], list[str]]:
    """Select the points that fit into memory, and return them with a note about the others.

    If the study's file has no 'measure', slow points are left out as well.
    """
    points: list[SweepPoint] = []
    reasons: dict[str, list[SweepPoint]] = {}
    for point in sweep.points:
        needs = estimate_needs(sweep, case.profile, point.workers, point.batch_per_worker)
        if point.key in stored_keys:
            points.append(point)
        elif not needs.fits:
            reasons.setdefault(needs.memory_description, []).append(point)
        elif not requested and needs.seconds > _MAX_DEFAULT_RUN_SECONDS:
            reasons.setdefault(f"takes about {format_seconds(needs.seconds)}", []).append(point)
        else:
            points.append(point)
    if not reasons:
        return tuple(points), []
    name = case.workload.name
    # the smallest point is enough of an explanation: larger ones need more
    reason, (first, *_) = next(iter(reasons.items()))
    explanation = (
        f"{format_count(first.workers, 'worker')} at a batch of {first.batch_per_worker} {reason}"
    )
    if points:
        left_out = "; ".join(
            f"{format_count(workers, 'worker')} at a batch of {', '.join(map(str, batches))}"
            for workers in sorted({p.workers for p in sweep.points})
            if (
                batches := [
                    p.batch_per_worker
                    for p in sweep.points
                    if p not in points and p.workers == workers
                ]
            )
        )
        note = f"{name} is not measured with {left_out}: training with {explanation}."
    else:
        note = f"{name} is not measured here, only predicted: training with {explanation}."
    if not requested and estimate_needs(sweep, case.profile, 1, 1).fits:
        note += " To choose what is measured, add 'measure' to the study, e.g. measure: {workers: [1], batch: [1]}."
    return tuple(points), [note]


def _announce_runs(sweeps: Sequence[Sweep], store: ResultsStore, *, fresh: bool) -> list[str]:
    """Describe the runs that are about to start, and their estimated time."""
    missing = []
    for sweep in sweeps:
        stored_keys = set() if fresh else find_stored_keys(sweep, store)
        points = tuple(point for point in sweep.points if point.key not in stored_keys)
        missing.append(replace(sweep, points=points))
    count = sum(len(sweep.points) for sweep in missing)
    if not count:
        return []
    seconds = sum(estimate_point_seconds(missing).values())
    return [
        f"Measuring {format_count(count, 'run')} on this machine first, about {format_seconds(seconds)} in total; "
        "Ctrl-C stops it, and the next study continues from there."
    ]


def _set_batches(case: StudyCase, sweep: Sweep) -> StudyCase:
    """Set the case's batches to those that are measured, so that its finding is at one of them."""
    batches = tuple(sorted({point.batch_per_worker for point in sweep.points}))
    return replace(case, batches=batches or case.batches)


def _plan_case(case: StudyCase, here: MeasureHere) -> Sweep:
    return plan_sweep(
        case.workload,
        here.workers,
        case.batches,
        strategy=here.strategy,
        seconds_per_point=here.time_per_point,
        check_memory=False,  # points that do not fit are left out later
    )


def _note_doubtful_runs(results: Sequence[WorkloadResult]) -> list[str]:
    """Return one note for each workload with doubtful runs; its table marks each of them."""
    notes = []
    for result in results:
        doubtful = [point for point in result.measured if point.doubt is not None]
        if doubtful:
            first = doubtful[0]
            run = f"{format_count(first.workers, 'worker')} at a batch of {first.batch_per_worker}"
            some = f"{len(doubtful)} of {len(result.measured)} runs of {result.name}, for example"
            subject = f"{result.name} with" if len(doubtful) == 1 else some
            notes.append(f"Doubtful: {subject} {run}: {first.doubt}.")
    advice = "Verdicts ignore doubtful runs; measure again with --fresh when the machine is quiet."
    return [*notes, advice] if notes else []


def _note_memory(results: Sequence[WorkloadResult]) -> list[str]:
    return [
        f"Does not fit, and is not drawn: {result.name} on {curve.platform} at a batch of "
        f"{curve.predictions[0].batch_per_gpu} with {', '.join(map(str, unfit))} GPUs."
        for result in results
        for curve in result.curves
        if (unfit := [p.gpus for p in curve.predictions if p.fits is False])
    ]


def _note_synthetic_data(results: Sequence[WorkloadResult]) -> list[str]:
    by_source: dict[str, list[str]] = {}
    for result in results:
        if "synthetic" in result.data_source:
            by_source.setdefault(result.data_source, []).append(result.name)
    return [f"Measured on {source}: {', '.join(names)}." for source, names in by_source.items()]


def _note_calibration(results: Sequence[WorkloadResult]) -> list[str]:
    sources = dict.fromkeys(
        constant.source
        for result in results
        for curve in result.curves
        for constant in curve.constants
        if constant.source.startswith(CALIBRATED)
    )
    return [f"Constants are {source}." for source in sources]
