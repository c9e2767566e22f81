"""Walks the whole row on one machine: reads every spec first, then measures, predicts, prices and judges."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpuyard import __version__
from gpuyard.catalog.hardware import ends_of
from gpuyard.catalog.specfiles import read_plan, read_workload
from gpuyard.cpu import usable_cores
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.hardware.clusters import machine_of, read_cluster
from gpuyard.hardware.host import discover_host
from gpuyard.measure import Measurement, ResultsStore, Sweep, plan_sweep, run_sweep
from gpuyard.measure.progress import ProgressUpdate, Tell
from gpuyard.measure.stored_figures import StoredRuns
from gpuyard.measure.training.run import expected_seconds, stored_keys, sweep_meter
from gpuyard.measure.training.size import needs_of
from gpuyard.measure.training.sweep import SweepPoint
from gpuyard.planner import PlanResult, make_plan
from gpuyard.predict import CALIBRATED, Calibration
from gpuyard.specs import DEFAULT_STRATEGY, Cluster
from gpuyard.specs.study import MeasureHere, Study, StudyCluster, StudyWorkload
from gpuyard.study.cost import cost_result
from gpuyard.study.result import StudyResult, WorkloadResult
from gpuyard.study.workload import StudyCase, assemble, predict_elsewhere
from gpuyard.units import counted, format_seconds
from gpuyard.workloads import profile_of

_MOST_PAIRS, _MOST_PREDICTIONS = 200, 20_000
_LONGEST_UNASKED_SECONDS = 120.0  # of one run that the study's file does not ask for
_MOST_DOUBLINGS = 24  # of one GPU, up to all that a cluster's file may name


def run_study(
    study: Study,
    directory: Path,
    store: ResultsStore,
    *,
    tell: Tell = lambda _progress: None,
    fresh: bool = False,
    calibration: Calibration | None = None,
    stored: StoredRuns | None = None,
) -> StudyResult:
    """Do it all. A mistake in any spec is found before anything is measured. What is stored of several GPUs counts
    for clusters elsewhere."""
    _check_count(study)
    tell(ProgressUpdate("reading the specs"))
    cases = _cases(study, directory)
    clusters = _clusters(study, directory)
    elsewhere = [
        [
            predict_elsewhere(case, cluster, entry, calibration, stored)
            for cluster, entry in clusters
        ]
        for case in cases
    ]
    cost = cost_result(study.cost) if study.cost else None
    plan = _decide(study.plan, directory, calibration, stored) if study.plan else None
    cases, measured, notes = _measure(cases, study, store, tell=tell, fresh=fresh)
    results = [
        assemble(*parts, calibration) for parts in zip(cases, measured, elsewhere, strict=True)
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
            + _data_notes(results)
            + _doubt_notes(results)
            + _memory_notes(results)
            + [end.sentence for end in ends_of(machine_of(cluster)[0] for cluster, _ in clusters)]
            + _calibration_notes(results)
        ),
        plan=plan,
    )


def _decide(
    file: str, directory: Path, calibration: Calibration | None, stored: StoredRuns | None
) -> PlanResult:
    path = directory / file
    figures = stored.added_to if stored else None
    return make_plan(read_plan(path), path.parent, calibration, figures=figures)


def _read(entry: StudyWorkload | str, study: Study, directory: Path) -> StudyCase:
    named = entry if isinstance(entry, StudyWorkload) else StudyWorkload(workload=entry)
    workload = read_workload(named.workload, directory)
    here = study.measure
    batches = named.batch or (here.batch if here else (workload.batch_per_gpu,))
    strategy = here.strategy if here else DEFAULT_STRATEGY
    return StudyCase(workload, profile_of(workload), batches, study.epoch_batches, strategy)


def _check_count(study: Study) -> None:
    """Before any file that it names is read."""
    pairs = len(study.workloads) * len(study.clusters)
    if pairs > _MOST_PAIRS:
        raise UserMistake(
            f"{counted(len(study.workloads), 'workload')} on {counted(len(study.clusters), 'cluster')} are {pairs:,} "
            f"combinations, {_MOST_PAIRS:,} is the most for one study"
        )
    doublings = len(study.epoch_batches) + _MOST_DOUBLINGS
    each = sum(
        doublings if entry.gpus is None else len(entry.gpus) + len(study.epoch_batches)
        for entry in study.clusters
    )
    if (count := len(study.workloads) * each) > _MOST_PREDICTIONS:
        raise UserMistake(
            f"the study has {count:,} points to predict, {_MOST_PREDICTIONS:,} is the most: shorten "
            "'gpus' of its clusters or 'epoch_batches'"
        )


def _cases(study: Study, directory: Path) -> list[StudyCase]:
    cases: dict[str, StudyCase] = {}
    for entry in study.workloads:
        case = _read(entry, study, directory)
        name = case.workload.name
        if name in cases:
            raise UserMistake(f"two workloads of the study are called {name!r}; rename one")
        cases[name] = case
    return list(cases.values())


def _clusters(study: Study, directory: Path) -> list[tuple[Cluster, StudyCluster]]:
    """Each with a name of its own: a cluster that is tried twice says how."""
    named = [entry.cluster for entry in study.clusters if isinstance(entry.cluster, str)]
    known = {name: read_cluster(name, directory) for name in dict.fromkeys(named)}
    read = [
        (known[entry.cluster] if isinstance(entry.cluster, str) else entry.cluster, entry)
        for entry in study.clusters
    ]
    names = Counter(cluster.name for cluster, _ in read)
    return [
        (
            cluster.model_copy(update={"name": f"{cluster.name} ({_tried_as(entry)})"})
            if names[cluster.name] > 1
            else cluster,
            entry,
        )
        for cluster, entry in read
    ]


def _tried_as(entry: StudyCluster) -> str:
    batch = () if entry.batch is None else (f"batch {entry.batch}",)
    return ", ".join((entry.strategy, *batch, *entry.exchange.words))


def _measure(
    cases: Sequence[StudyCase],
    study: Study,
    store: ResultsStore,
    *,
    tell: Tell,
    fresh: bool,
) -> tuple[list[StudyCase], list[list[Measurement]], list[str]]:
    """The cases with the batches that are measured, their runs, and what a reader must know where there are none."""
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
        sweeps = [_plan(case, here) for case in cases]
    except MissingRequirement as missing:
        return list(cases), nothing, [f"Nothing was measured on this machine: {missing}."]
    asked = "measure" in study.model_fields_set
    kept: list[Sweep] = []
    for case, sweep in zip(cases, sweeps, strict=True):
        known = set() if fresh else stored_keys(sweep, store)
        points, skipped = _worth_measuring(case, sweep, known, asked=asked)
        kept.append(replace(sweep, points=points))
        notes += skipped
    for note in (*notes, *_beforehand(kept, store, fresh=fresh)):
        tell(ProgressUpdate("measuring", line=note))
    meter = sweep_meter(kept)
    measured = [
        run_sweep(
            sweep,
            store,
            on_event=lambda event: tell(event.progress),
            fresh=fresh,
            meter=meter,
        )
        for sweep in kept
    ]
    tell(ProgressUpdate("predicting and pricing"))
    cases = [_with_batches_of(case, sweep) for case, sweep in zip(cases, kept, strict=True)]
    return cases, measured, notes


def _worth_measuring(
    case: StudyCase, sweep: Sweep, known: Collection[str], *, asked: bool
) -> tuple[tuple[SweepPoint, ...], list[str]]:
    """The points that fit into memory and, where the study does not ask for them, that take no longer than somebody
    waits; with the sentence about the others."""
    points: list[SweepPoint] = []
    reasons: dict[str, list[SweepPoint]] = {}
    for point in sweep.points:
        needs = needs_of(sweep, case.profile, point.workers, point.batch_per_worker)
        if point.key not in known and not needs.fits:
            reasons.setdefault(needs.memory_words, []).append(point)
        elif point.key not in known and not asked and needs.seconds > _LONGEST_UNASKED_SECONDS:
            reasons.setdefault(f"takes about {format_seconds(needs.seconds)}", []).append(point)
        else:
            points.append(point)
    if not reasons:
        return tuple(points), []
    name = case.workload.name
    # the smallest says enough: what is larger needs more
    reason, (first, *_) = next(iter(reasons.items()))
    what = f"{counted(first.workers, 'worker')} at a batch of {first.batch_per_worker} {reason}"
    if points:
        left_out = "; ".join(
            f"{counted(workers, 'worker')} at {', '.join(map(str, batches))}"
            for workers in sorted({p.workers for p in sweep.points})
            if (
                batches := [
                    p.batch_per_worker
                    for p in sweep.points
                    if p not in points and p.workers == workers
                ]
            )
        )
        note = f"Not measured of {name}, by batch: {left_out}. Training with {what}."
    else:
        note = f"{name} is not measured here, only predicted: training with {what}."
    if not asked and needs_of(sweep, case.profile, 1, 1).fits:
        note += " To choose what is measured, give the study 'measure', e.g. measure: {workers: [1], batch: [1]}."
    return tuple(points), [note]


def _beforehand(sweeps: Sequence[Sweep], store: ResultsStore, *, fresh: bool) -> list[str]:
    """What begins now, for somebody who did not ask for it in so many words."""
    missing = [
        replace(sweep, points=tuple(p for p in sweep.points if p.key not in known))
        for sweep in sweeps
        for known in [set[str]() if fresh else stored_keys(sweep, store)]
    ]
    count = sum(len(sweep.points) for sweep in missing)
    if not count:
        return []
    seconds = sum(expected_seconds(missing).values())
    return [
        f"Measuring {counted(count, 'run')} on this machine first, about {format_seconds(seconds)} in total; "
        "Ctrl-C stops it, and the next time it goes on from there."
    ]


def _with_batches_of(case: StudyCase, sweep: Sweep) -> StudyCase:
    """What is found here is found at a batch that was measured."""
    batches = tuple(sorted({point.batch_per_worker for point in sweep.points}))
    return replace(case, batches=batches or case.batches)


def _plan(case: StudyCase, here: MeasureHere) -> Sweep:
    return plan_sweep(
        case.workload,
        here.workers,
        case.batches,
        strategy=here.strategy,
        seconds_per_point=here.time_per_point,
        check_memory=False,  # what does not fit is left out
    )


def _doubt_notes(results: Sequence[WorkloadResult]) -> list[str]:
    """One for each workload: the table of its numbers says it of each run."""
    notes = []
    for result in results:
        doubted = [point for point in result.measured if point.doubt is not None]
        if doubted:
            first = doubted[0]
            run = f"{counted(first.workers, 'worker')} at a batch of {first.batch_per_worker}"
            some = f"{len(doubted)} of {len(result.measured)} runs of {result.name}, for example"
            which = f"{result.name} with" if len(doubted) == 1 else some
            notes.append(f"Doubtful: {which} {run}: {first.doubt}.")
    again = (
        "No verdict stands on doubtful runs: measure again with --fresh when the machine is quiet."
    )
    return [*notes, again] if notes else []


def _memory_notes(results: Sequence[WorkloadResult]) -> list[str]:
    return [
        f"Does not fit, and is not drawn: {result.name} on {curve.platform} at a batch of "
        f"{curve.predictions[0].batch_per_gpu} with {', '.join(map(str, unfit))} GPUs."
        for result in results
        for curve in result.curves
        if (unfit := [p.gpus for p in curve.predictions if p.fits is False])
    ]


def _data_notes(results: Sequence[WorkloadResult]) -> list[str]:
    by_source: dict[str, list[str]] = {}
    for result in results:
        if "synthetic" in result.data_source:
            by_source.setdefault(result.data_source, []).append(result.name)
    return [f"Measured on {source}: {', '.join(names)}." for source, names in by_source.items()]


def _calibration_notes(results: Sequence[WorkloadResult]) -> list[str]:
    sources = dict.fromkeys(
        constant.source
        for result in results
        for curve in result.curves
        for constant in curve.constants
        if constant.source.startswith(CALIBRATED)
    )
    return [f"Constants are {source}." for source in sources]
