"""Running a sweep: what the store lacks is measured, judged, and stored as soon as it is known."""

import contextlib
import platform
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime

from gpuyard import __version__
from gpuyard.measure.clock import Clock
from gpuyard.measure.foreign import ForeignLoad
from gpuyard.measure.host import torch_version
from gpuyard.measure.lock import only_one_measures
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.job import PointResult, Progress, RankJob, read_event
from gpuyard.measure.training.measurement import Measurement, Provenance
from gpuyard.measure.training.rejection import Rejection
from gpuyard.measure.training.sweep import Point, Sweep, SweepEvent
from gpuyard.measure.training.sweep_ranks import run_where_planned, told_all
from gpuyard.run.launch import Environment
from gpuyard.run.ranks import private_directory

_SILENCE_SECONDS = 600.0

Judge = Callable[[Measurement, float | None], str | None]
"""From a measurement and the foreign load beside it to the reason why it is not credible, if it is not."""


def run_sweep(
    sweep: Sweep,
    store: ResultsStore,
    *,
    on_event: Callable[[SweepEvent], None] | None = None,
    fresh: bool = False,
    silence_seconds: float = _SILENCE_SECONDS,
    judge: Judge | None = None,
    keep_doubtful: bool = False,
) -> list[Measurement]:
    """Measure what the store does not have yet; each point is stored as soon as it is known.

    What a judge rejects is stored with the reason and is not among the measurements returned; a stored run
    that it would have rejected, because nobody judged it then, is measured again. With `keep_doubtful` it
    is a measurement like others, with its doubt.
    """
    tell = on_event or (lambda _event: None)
    known: dict[Point, Measurement] = {}
    for point in sweep.points:
        stored = None if fresh else stored_run(store, point, None if keep_doubtful else judge)
        if stored is not None:
            known[point] = stored
            tell(SweepEvent(point, "stored", 1.0, 0.0, stored))
    missing = [point for point in sweep.points if point not in known]
    if not missing:
        return [known[point] for point in sweep.points]
    clock = Clock(sweep.seconds_per_point, missing)
    with only_one_measures():
        for workers in sorted({point.workers for point in missing}):
            todo = [point for point in missing if point.workers == workers]
            foreign = ForeignLoad(sweep.cores_by_worker[:workers])
            with contextlib.closing(_run_points(sweep, todo, silence_seconds)) as events:
                for point, event in events:
                    if isinstance(event, Progress):
                        if not event.fraction:
                            foreign.begin()
                        state = "running" if event.fraction else "started"
                        tell(SweepEvent(point, state, event.fraction, clock.left(event.fraction)))
                        continue
                    measurement = _measurement(sweep, point, event)
                    reason = judge(measurement, foreign.share()) if judge else None
                    clock.finished(point)
                    left = clock.left(0.0)
                    if reason is not None and keep_doubtful:
                        measurement = measurement.model_copy(update={"doubt": reason})
                    elif reason is not None:
                        store.add(Rejection.of(measurement, reason))
                        tell(SweepEvent(point, "rejected", 1.0, left, measurement, reason))
                        continue
                    store.add(measurement)
                    known[point] = measurement
                    tell(SweepEvent(point, "finished", 1.0, left, measurement))
    return [known[point] for point in sweep.points if point in known]


def stored_run(store: ResultsStore, point: Point, judge: Judge | None = None) -> Measurement | None:
    """What the store has of a point, if it is credible; the load beside it then is not known."""
    found = store.find(point.key)
    return None if found is None or (judge and (found.doubt or judge(found, None))) else found


def _run_points(
    sweep: Sweep, todo: Sequence[Point], silence_seconds: float
) -> Generator[tuple[Point, Progress | PointResult], None, None]:
    workers = todo[0].workers
    processes = 1 if sweep.strategy == "dataparallel" else workers
    by_batch = {point.batch_per_worker: point for point in todo}
    with private_directory() as directory, _environment(sweep, processes) as environment:
        jobs = [
            RankJob(
                **told_all(sweep, rank, processes, directory),
                workers=workers,
                batches=tuple(by_batch),
                silence_seconds=silence_seconds,
                remedy=sweep.remedy,
                synthetic=sweep.synthetic,
            )
            for rank in range(processes)
        ]
        ranks: Generator[Progress | PointResult, None, None] = run_where_planned(
            sweep, jobs, parse=read_event, environment=environment
        )
        with contextlib.closing(ranks) as events:
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


def _measurement(sweep: Sweep, point: Point, result: PointResult) -> Measurement:
    processes = 1 if sweep.strategy == "dataparallel" else point.workers
    cores_by_worker = sweep.cores_by_worker[:processes]
    return Measurement(
        id=uuid.uuid4().hex[:12],
        key=point.key,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        workload=sweep.workload.name,
        spec=sweep.workload.model_dump(mode="json"),
        workers=point.workers,
        strategy=sweep.strategy,
        device=sweep.device,
        remedy=sweep.remedy,
        synthetic=sweep.synthetic,
        place=sweep.place.record(point.workers),
        provenance=Provenance(
            gpuyard=__version__,
            torch=torch_version(),
            python=platform.python_version(),
            os=sweep.host.os,
            kernel=sweep.host.kernel,
            host=sweep.host.host,
            cpu_model=sweep.host.cpu_model,
            cores=sweep.host.cores,
            memory_bytes=sweep.host.memory_bytes,
            gpus=sweep.host.gpus,
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
