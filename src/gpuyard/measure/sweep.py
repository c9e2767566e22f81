"""A training sweep: first a value that says what would run, then the runs."""

import contextlib
import hashlib
import json
import math
import platform
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from gpuyard import __version__, paths
from gpuyard.errors import UserMistake
from gpuyard.hardware.cpu import usable_cores
from gpuyard.measure.host import Host, this_host, torch_version
from gpuyard.measure.job import RANK_EVENT, PointResult, Progress, RankJob
from gpuyard.measure.lock import only_one_measures
from gpuyard.measure.measurement import Device, Measurement, Provenance
from gpuyard.measure.ranks import private_directory, run_ranks
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.strategies import check_strategy
from gpuyard.specs import Strategy, Workload
from gpuyard.workloads.resolve import code_digest, require_torch

_START_SECONDS = 4.0  # a first guess of what starting ranks costs, for the time left only
_SILENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Point:
    """One measurement to make; the key is the same for the same run on the same machine."""

    workers: int
    batch_per_worker: int
    key: str


@dataclass(frozen=True)
class Sweep:
    """What would run. Every worker has the same number of cores, so that speeds compare."""

    workload: Workload
    strategy: Strategy
    device: Device
    seconds_per_point: float
    cores_by_worker: tuple[tuple[int, ...], ...]
    seed: int
    host: Host
    points: tuple[Point, ...]

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "workload": self.workload.name,
            "model": self.workload.model,
            "strategy": self.strategy,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "cores_by_worker": [list(cores) for cores in self.cores_by_worker],
            "seed": self.seed,
            "host": self.host.host,
            "points": [
                {"workers": p.workers, "batch_per_worker": p.batch_per_worker, "key": p.key}
                for p in self.points
            ],
        }


@dataclass(frozen=True)
class SweepEvent:
    """What a progress bar shows; `fraction` is of this point, `left_seconds` for all the rest."""

    point: Point
    state: str  # "stored", "started", "running" or "finished"
    fraction: float
    left_seconds: float
    measurement: Measurement | None = None


def plan_sweep(
    workload: Workload,
    workers: Sequence[int],
    batches: Sequence[int],
    *,
    strategy: str = "ddp",
    seconds_per_point: float = 3.0,
    device: Device | None = None,
    seed: int = 0,
) -> Sweep:
    """Check everything that can be checked before a process starts."""
    require_torch()
    workers, batches = sorted(set(workers)), sorted(set(batches))
    if not workers or not batches or workers[0] < 1 or batches[0] < 1:
        raise UserMistake("a sweep needs at least one worker count and one batch size, 1 or more")
    if not (math.isfinite(seconds_per_point) and seconds_per_point > 0):
        raise UserMistake(f"{seconds_per_point} is not a time for one point; it must be above 0 s")
    host = this_host()
    device = device or ("cuda" if host.gpus else "cpu")
    check_strategy(
        strategy,
        precision=workload.precision,
        device=device,
        gpus=len(host.gpus),
        most_workers=workers[-1],
    )
    cores = usable_cores()
    if workers[-1] > len(cores):
        raise UserMistake(
            f"{workers[-1]} workers need {workers[-1]} cores, this machine lets gpuyard use "
            f"{len(cores)}; ask for at most {len(cores)} workers"
        )
    each = len(cores) // workers[-1]
    cores_by_worker = tuple(cores[i * each : (i + 1) * each] for i in range(workers[-1]))
    common = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r) for r in _references(workload)],
        "data": _data_is_here(workload),
        "strategy": strategy,
        "device": device,
        "seconds_per_point": seconds_per_point,
        "cores_each": each,
        "seed": seed,
        "host": host.fingerprint(),
        "torch": torch_version(),
        "gpuyard": __version__,
    }
    points = tuple(Point(w, b, _key(common, w, b)) for w in workers for b in batches)
    return Sweep(
        workload,
        cast("Strategy", strategy),
        device,
        seconds_per_point,
        cores_by_worker,
        seed,
        host,
        points,
    )


def run_sweep(
    sweep: Sweep,
    store: ResultsStore,
    *,
    on_event: Callable[[SweepEvent], None] | None = None,
    fresh: bool = False,
    silence_seconds: float = _SILENCE_SECONDS,
) -> list[Measurement]:
    """Measure what the store does not have yet; each point is stored as soon as it is known."""
    tell = on_event or (lambda _event: None)
    known: dict[Point, Measurement] = {}
    for point in sweep.points:
        stored = None if fresh else store.find(point.key)
        if stored is not None:
            known[point] = stored
            tell(SweepEvent(point, "stored", 1.0, 0.0, stored))
    missing = [point for point in sweep.points if point not in known]
    if not missing:
        return [known[point] for point in sweep.points]
    clock = _Clock(sweep.seconds_per_point, missing)
    with only_one_measures():
        for workers in sorted({point.workers for point in missing}):
            todo = [point for point in missing if point.workers == workers]
            with contextlib.closing(_run_points(sweep, todo, silence_seconds)) as events:
                for point, event in events:
                    if isinstance(event, PointResult):
                        measurement = _measurement(sweep, point, event)
                        store.add(measurement)
                        known[point] = measurement
                        clock.finished(point)
                        tell(SweepEvent(point, "finished", 1.0, clock.left(0.0), measurement))
                    else:
                        state = "running" if event.fraction else "started"
                        tell(SweepEvent(point, state, event.fraction, clock.left(event.fraction)))
    return [known[point] for point in sweep.points]


def _run_points(
    sweep: Sweep, todo: Sequence[Point], silence_seconds: float
) -> Generator[tuple[Point, Progress | PointResult], None, None]:
    workers = todo[0].workers
    processes = 1 if sweep.strategy == "dataparallel" else workers
    by_batch = {point.batch_per_worker: point for point in todo}
    with private_directory() as directory, _environment(sweep, processes) as environment:
        jobs = [
            RankJob(
                workload=sweep.workload,
                strategy=sweep.strategy,
                device=sweep.device,
                rank=rank,
                processes=processes,
                workers=workers,
                directory=str(directory),
                batches=tuple(by_batch),
                seconds_per_point=sweep.seconds_per_point,
                cores=sweep.cores_by_worker[rank],
                seed=sweep.seed,
                silence_seconds=silence_seconds,
            )
            for rank in range(processes)
        ]
        ranks: Generator[Progress | PointResult, None, None] = run_ranks(
            jobs, environment, parse=RANK_EVENT.validate_json
        )
        with contextlib.closing(ranks) as events:
            for event in events:
                yield by_batch[event.batch_per_worker], event


@contextlib.contextmanager
def _environment(sweep: Sweep, processes: int) -> Iterator[Callable[[int], Mapping[str, str]]]:
    if sweep.strategy != "horovod" or processes == 1:
        yield lambda _rank: {}
        return
    from gpuyard.measure.horovod_rendezvous import horovod_rendezvous

    with horovod_rendezvous(processes) as environment:
        yield environment


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
        ),
        **{
            name: getattr(result, name)
            for name in type(result).model_fields
            if name not in {"event", "backend", "data_source"}
        },
    )


class _Clock:
    """The time left: a first guess for each point, corrected by how long the finished ones took."""

    def __init__(self, seconds_per_point: float, missing: Sequence[Point]) -> None:
        self._guess = 1.0 + 1.3 * seconds_per_point
        self._left = dict.fromkeys(missing, self._guess)
        starts: set[int] = set()
        for point in missing:
            if point.workers not in starts:
                starts.add(point.workers)
                self._left[point] += _START_SECONDS
        self._guessed_done = 0.0
        self._began = time.monotonic()

    def finished(self, point: Point) -> None:
        self._guessed_done += self._left.pop(point)

    def left(self, fraction: float) -> float:
        guessed = sum(self._left.values()) - fraction * self._guess
        if not self._guessed_done:
            return max(0.0, guessed)
        done = self._guessed_done + fraction * self._guess
        return max(0.0, guessed) * (time.monotonic() - self._began) / done


def _key(common: Mapping[str, Any], workers: int, batch: int) -> str:
    document = {**common, "workers": workers, "batch_per_worker": batch}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _references(workload: Workload) -> list[str]:
    named = [workload.model, workload.dataset.source if workload.dataset else ""]
    return [reference for reference in named if ":" in reference]


def _data_is_here(workload: Workload) -> bool:
    if workload.dataset is None or workload.dataset.source != "spoken-digits":
        return True
    return paths.dataset_directory("spoken-digits").is_dir()
