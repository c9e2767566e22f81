"""Runs a sweep: measures the points that the store lacks, checks their credibility, and stores each at once."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

from gpuyard.catalog import ModelProfile
from gpuyard.measure.machine_lock import hold_measurement_lock
from gpuyard.measure.progress import ProgressMeter
from gpuyard.measure.ranks import launch_ranks
from gpuyard.measure.record import create_identity
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import complete_sweep
from gpuyard.measure.training.records import (
    Measurement,
    PointProgress,
    PointResult,
    Provenance,
    Rejection,
    TrainingJob,
    read_event,
)
from gpuyard.measure.training.size import estimate_needs
from gpuyard.measure.training.sweep import PointState, Sweep, SweepEvent, SweepPoint
from gpuyard.measure.validity import Judge, OtherLoad, ValidityCheck
from gpuyard.run.launch import Environment
from gpuyard.run.protocol import SILENCE_SECONDS
from gpuyard.workloads.profiles import catalog_profile

_WORKER = "gpuyard.measure.training.worker"
_MIN_EXCHANGES = 7  # per point: the initial weights, a warm-up, three windows, two bare all-reduces
_START_SECONDS = 4.0  # an estimate of the time to start ranks


def run_sweep(
    sweep: Sweep,
    store: ResultsStore,
    *,
    on_event: Callable[[SweepEvent], None] = lambda _event: None,
    fresh: bool = False,
    silence_seconds: float = SILENCE_SECONDS,
    reject_doubtful: bool = False,
    meter: ProgressMeter | None = None,
) -> list[Measurement]:
    """Measure the points that the store lacks, and store each as soon as it is measured.

    Every run is checked. A run that is not valid is stored as a measurement with its doubt. With
    `reject_doubtful` it is stored as a rejection instead and not returned, and doubtful stored runs are repeated.
    """
    meter = meter or create_sweep_meter([sweep])
    judge = ValidityCheck(sweep.workload)
    measurements: dict[SweepPoint, Measurement] = {}

    def report(
        point: SweepPoint,
        state: PointState,
        fraction: float = 1.0,
        measurement: Measurement | None = None,
    ) -> None:
        progress = meter.advance(point.key, fraction, sweep.point_label(point))
        on_event(SweepEvent(sweep, point, state, progress, measurement))

    for point in sweep.points:
        stored = None if fresh else find_stored_run(store, point, judge)
        if stored is not None and not (stored.doubt and reject_doubtful):
            measurements[point] = stored
            meter.skip(point.key)
            report(point, "stored", measurement=stored)
    missing = [point for point in sweep.points if point not in measurements]
    if not missing:
        return [measurements[point] for point in sweep.points]
    sweep = complete_sweep(sweep)
    with hold_measurement_lock():
        for workers in sorted({point.workers for point in missing}):
            todo = [point for point in missing if point.workers == workers]
            load = OtherLoad(
                sweep.list_used_cores(workers) or sweep.place.host_cores,
                sweep.place.host_processes(),
            )
            with contextlib.closing(_run_points(sweep, todo, silence_seconds)) as events:
                for point, event in events:
                    if isinstance(event, PointProgress):
                        if not event.fraction:
                            load.begin()
                        report(point, "running" if event.fraction else "started", event.fraction)
                        continue
                    measurement = _build_measurement(sweep, point, event, load.busy_share())
                    doubt = judge(measurement, load.share())
                    judged = measurement.model_copy(update={"doubt": doubt})
                    if doubt is not None and reject_doubtful:
                        store.add(Rejection.from_measurement(measurement, doubt))
                        report(point, "rejected", measurement=judged)
                    else:
                        store.add(judged)
                        measurements[point] = judged
                        report(point, "finished", measurement=judged)
    return [measurements[point] for point in sweep.points if point in measurements]


def create_sweep_meter(sweeps: Iterable[Sweep]) -> ProgressMeter:
    """Create a progress meter for sweeps that run one after another."""
    return ProgressMeter(estimate_point_seconds(sweeps))


def estimate_point_seconds(sweeps: Iterable[Sweep]) -> dict[str, float]:
    """Estimate how long each point takes to measure, by its key."""
    seconds_by_key: dict[str, float] = {}
    for sweep in sweeps:
        started: set[int] = set()
        profile = catalog_profile(sweep.workload)
        for point in sweep.points:
            start = 0.0 if point.workers in started else _START_SECONDS
            started.add(point.workers)
            minimum = 0.0 if profile is None else _estimate_min_seconds(sweep, profile, point)
            seconds_by_key[point.key] = max(1.0 + 1.3 * sweep.seconds_per_point, minimum) + start
    return seconds_by_key


def _estimate_min_seconds(sweep: Sweep, profile: ModelProfile, point: SweepPoint) -> float:
    """Estimate the time of the fewest steps that a point needs, including their gradient exchange."""
    compute_seconds = estimate_needs(sweep, profile, point.workers, point.batch_per_worker).seconds
    return compute_seconds + _MIN_EXCHANGES * _estimate_ring_seconds(sweep, profile, point.workers)


def _estimate_ring_seconds(sweep: Sweep, profile: ModelProfile, workers: int) -> float:
    """Estimate a ring all-reduce of all gradients; return 0 if the link rate is unknown."""
    link = sweep.place.ring_link_bytes_per_second(workers)
    if link is None:
        return 0.0
    return 2 * (workers - 1) / workers * profile.gradient_bytes / link


def find_stored_keys(sweep: Sweep, store: ResultsStore) -> set[str]:
    """Return the keys of the points that have a stored run, valid or not."""
    return {p.key for p in sweep.points if store.latest(Measurement, p.key) is not None}


def find_stored_run(store: ResultsStore, point: SweepPoint, judge: Judge) -> Measurement | None:
    """Return the stored run of a point with its stored doubt, or a doubt that today's checks raise.

    The load from other programs during that run is no longer known, so it is not checked.
    """
    run = store.latest(Measurement, point.key)
    if run is None or run.doubt is not None:
        return run
    return run.model_copy(update={"doubt": judge(run, None)})


def _run_points(
    sweep: Sweep, todo: Sequence[SweepPoint], silence_seconds: float
) -> Generator[tuple[SweepPoint, PointProgress | PointResult], None, None]:
    workers = todo[0].workers
    processes = 1 if sweep.strategy == "dataparallel" else workers
    by_batch = {point.batch_per_worker: point for point in todo}
    job = partial(
        TrainingJob,
        **sweep.job_fields(),
        workers=workers,
        batches=tuple(by_batch),
        silence_seconds=silence_seconds,
        remedy=sweep.remedy,
        synthetic=sweep.synthetic,
    )
    with (
        _rank_environment(sweep, processes) as environment,
        launch_ranks(
            sweep.place,
            sweep.cores_by_worker[:processes],
            job,
            worker=_WORKER,
            read=read_event,
            launcher=sweep.launcher,
            environment=environment,
        ) as events,
    ):
        for event in events:
            yield by_batch[event.batch_per_worker], event


@contextlib.contextmanager
def _rank_environment(sweep: Sweep, processes: int) -> Iterator[Environment]:
    if sweep.strategy != "horovod" or processes == 1:
        yield lambda _rank: {}
        return
    from gpuyard.run.horovod_rendezvous import horovod_rendezvous

    bucket_mb = sweep.remedy.bucket_mb
    buffer_bytes = None if bucket_mb is None else round(bucket_mb * 2**20)
    with horovod_rendezvous(sweep.place, processes, buffer_bytes) as environment:
        yield environment


def _build_measurement(
    sweep: Sweep, point: SweepPoint, result: PointResult, host_busy_share: float | None
) -> Measurement:
    processes = 1 if sweep.strategy == "dataparallel" else point.workers
    cores_by_worker = sweep.cores_by_worker[:processes]
    return Measurement(
        **create_identity(point.key),
        workload=sweep.workload.name,
        spec=sweep.workload.model_dump(mode="json"),
        workers=point.workers,
        strategy=sweep.strategy,
        device=sweep.device,
        remedy=sweep.remedy,
        synthetic=sweep.synthetic,
        place=sweep.place.record(point.workers),
        host_busy_share=host_busy_share,
        provenance=Provenance(
            **sweep.testbed.model_dump(),
            backend=result.backend,
            threads_per_worker=len(cores_by_worker[0]),
            cores_by_worker=cores_by_worker,
            data_source=result.data_source,
            seed=sweep.seed,
            launcher=sweep.launcher,
        ),
        **{
            name: getattr(result, name)
            for name in type(result).model_fields
            if name not in {"event", "backend", "data_source"}
        },
    )
