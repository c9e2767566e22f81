"""Running a sweep: what the store lacks is measured, judged, and stored as soon as it is known."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

from gpuyard.catalog import ModelProfile
from gpuyard.measure.credible import Credibility, ForeignLoad, Judge
from gpuyard.measure.machine_lock import only_one_measures
from gpuyard.measure.progress import ProgressMeter
from gpuyard.measure.ranks import running_ranks
from gpuyard.measure.record import made_now
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import (
    Measurement,
    PointProgress,
    PointResult,
    Provenance,
    Rejection,
    TrainingJob,
    read_event,
)
from gpuyard.measure.training.size import needs_of
from gpuyard.measure.training.sweep import PointState, Sweep, SweepEvent, SweepPoint, completed
from gpuyard.run.launch import Environment
from gpuyard.run.protocol import SILENCE_SECONDS
from gpuyard.workloads.profiles import catalog_profile

_WORKER = "gpuyard.measure.training.worker"
_FEWEST_EXCHANGES = (
    7  # of a point: the model's first values, a warm-up, three windows, two bare ones
)
_START_SECONDS = 4.0  # a first guess of what starting ranks costs


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
    """Measure what the store does not have yet; each point is stored as soon as it is known.

    Every run is judged. One that is not credible is a measurement with its doubt; with `reject_doubtful` it is
    kept as a rejection and not among the measurements returned, and a stored one is measured again.
    """
    meter = meter or sweep_meter([sweep])
    judge = Credibility(sweep.workload)
    known: dict[SweepPoint, Measurement] = {}

    def tell(
        point: SweepPoint,
        state: PointState,
        fraction: float = 1.0,
        found: Measurement | None = None,
    ) -> None:
        progress = meter.at(point.key, fraction, sweep.point_label(point))
        on_event(SweepEvent(sweep, point, state, progress, found))

    for point in sweep.points:
        stored = None if fresh else stored_run(store, point, judge)
        if stored is not None and not (stored.doubt and reject_doubtful):
            known[point] = stored
            meter.skip(point.key)
            tell(point, "stored", found=stored)
    missing = [point for point in sweep.points if point not in known]
    if not missing:
        return [known[point] for point in sweep.points]
    sweep = completed(sweep)
    with only_one_measures():
        for workers in sorted({point.workers for point in missing}):
            todo = [point for point in missing if point.workers == workers]
            foreign = ForeignLoad(sweep.used_cores_of(workers))
            with contextlib.closing(_run_points(sweep, todo, silence_seconds)) as events:
                for point, event in events:
                    if isinstance(event, PointProgress):
                        if not event.fraction:
                            foreign.begin()
                        tell(point, "running" if event.fraction else "started", event.fraction)
                        continue
                    measurement = _measurement(sweep, point, event)
                    doubt = judge(measurement, foreign.share())
                    judged = measurement.model_copy(update={"doubt": doubt})
                    if doubt is not None and reject_doubtful:
                        store.add(Rejection.of(measurement, doubt))
                        tell(point, "rejected", found=judged)
                    else:
                        store.add(judged)
                        known[point] = judged
                        tell(point, "finished", found=judged)
    return [known[point] for point in sweep.points if point in known]


def sweep_meter(sweeps: Iterable[Sweep]) -> ProgressMeter:
    """For sweeps that are run one after the other."""
    return ProgressMeter(expected_seconds(sweeps))


def expected_seconds(sweeps: Iterable[Sweep]) -> dict[str, float]:
    """About so long each point takes, by its key."""
    guesses: dict[str, float] = {}
    for sweep in sweeps:
        started: set[int] = set()
        profile = catalog_profile(sweep.workload)
        for point in sweep.points:
            start = 0.0 if point.workers in started else _START_SECONDS
            started.add(point.workers)
            least = 0.0 if profile is None else _least_seconds(sweep, profile, point)
            guesses[point.key] = max(1.0 + 1.3 * sweep.seconds_per_point, least) + start
    return guesses


def _least_seconds(sweep: Sweep, profile: ModelProfile, point: SweepPoint) -> float:
    """That the fewest steps of a point take, and their exchanges."""
    computing = needs_of(sweep, profile, point.workers, point.batch_per_worker).seconds
    return computing + _FEWEST_EXCHANGES * _exchange_seconds(sweep, profile, point.workers)


def _exchange_seconds(sweep: Sweep, profile: ModelProfile, workers: int) -> float:
    """Of all gradients around a ring; 0 where nobody knows the link."""
    link = sweep.place.ring_link_bytes_per_second(workers)
    if link is None:
        return 0.0
    return 2 * (workers - 1) / workers * profile.gradient_bytes / link


def stored_keys(sweep: Sweep, store: ResultsStore) -> set[str]:
    """Of the points that need not be measured, believed or not."""
    return {p.key for p in sweep.points if store.latest(Measurement, p.key) is not None}


def stored_run(store: ResultsStore, point: SweepPoint, judge: Judge) -> Measurement | None:
    """What the store has of a point, with the doubt that was told then or that it deserves now.

    What other programs did then is not known any more.
    """
    found = store.latest(Measurement, point.key)
    if found is None or found.doubt is not None:
        return found
    return found.model_copy(update={"doubt": judge(found, None)})


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
        _environment(sweep, processes) as environment,
        running_ranks(
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
def _environment(sweep: Sweep, processes: int) -> Iterator[Environment]:
    if sweep.strategy != "horovod" or processes == 1:
        yield lambda _rank: {}
        return
    from gpuyard.run.horovod_rendezvous import horovod_rendezvous

    bucket_mb = sweep.remedy.bucket_mb
    buffer_bytes = None if bucket_mb is None else round(bucket_mb * 2**20)
    with horovod_rendezvous(sweep.place, processes, buffer_bytes) as of_horovod:
        yield of_horovod


def _measurement(sweep: Sweep, point: SweepPoint, result: PointResult) -> Measurement:
    processes = 1 if sweep.strategy == "dataparallel" else point.workers
    cores_by_worker = sweep.cores_by_worker[:processes]
    return Measurement(
        **made_now(point.key),
        workload=sweep.workload.name,
        spec=sweep.workload.model_dump(mode="json"),
        workers=point.workers,
        strategy=sweep.strategy,
        device=sweep.device,
        remedy=sweep.remedy,
        synthetic=sweep.synthetic,
        place=sweep.place.record(point.workers),
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
