"""Plans and runs all sweeps of a sweep file, grouped by link."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard import lab
from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure.progress import ProgressMeter
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import check_point_count, plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import create_sweep_meter, find_stored_run, run_sweep
from gpuyard.measure.training.sweep import Sweep, SweepEvent, SweepPoint
from gpuyard.measure.validity import ValidityCheck
from gpuyard.run.places import LabNodes, LocalMachine, Place
from gpuyard.specs import Workload
from gpuyard.specs.sweep import SweepFile, SweepLink
from gpuyard.workloads.code_trust import check_allowed


@dataclass(frozen=True)
class Matrix:
    """All combinations of a sweep file, grouped by link so that each lab is created once."""

    name: str
    by_link: tuple[tuple[SweepLink | None, tuple[Sweep, ...]], ...]
    attempts: int

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return tuple(sweep for _, sweeps in self.by_link for sweep in sweeps)

    @property
    def points(self) -> int:
        return sum(len(sweep.points) for sweep in self.sweeps)

    def find_stored_keys(self, store: ResultsStore) -> set[str]:
        """Return the keys of the points that already have a valid run."""
        return {
            point.key
            for sweep in self.sweeps
            for point in sweep.points
            if find_valid_run(store, sweep, point) is not None
        }

    def describe(self, stored: Collection[str] | None = None) -> dict[str, Any]:
        """Return the JSON value that `--dry-run` prints."""
        return {
            "name": self.name,
            "attempts": self.attempts,
            "points": self.points,
            "sweeps": [sweep.describe(stored) for sweep in self.sweeps],
        }


@dataclass(frozen=True)
class MatrixResult:
    """The measurements of all sweeps, and the points for which no run was valid, with the reason."""

    measurements: tuple[Measurement, ...]
    rejected: tuple[tuple[Sweep, SweepPoint, str], ...]


def plan_matrix(spec: SweepFile, directory: Path) -> Matrix:
    """Plan all sweeps, and check everything before any lab is created or anything is measured."""
    check_point_count(_count_points(spec))
    workloads = tuple(_read_workloads(spec, directory))
    by_link = []
    for link in spec.links():
        place = _plan_place(spec, link)
        sweeps = tuple(
            plan_sweep(
                workload,
                spec.nodes,
                batches,
                strategy=strategy,
                seconds_per_point=spec.time_per_point,
                remedy=remedy,
                gpu=spec.gpu,
                place=place,
                repeat=repeat,
            )
            for workload, batches in workloads
            for strategy in spec.strategy
            for remedy in spec.remedy
            for repeat in range(spec.repeats)
        )
        by_link.append((link, sweeps))
    return Matrix(spec.name, tuple(by_link), spec.attempts)


def run_matrix(
    matrix: Matrix,
    store: ResultsStore,
    *,
    on_event: Callable[[SweepEvent], None] = lambda _event: None,
    fresh: bool = False,
) -> MatrixResult:
    """Measure the points that the store lacks. Runs that are not valid are repeated, then rejected."""
    meter = create_sweep_meter(matrix.sweeps)
    measurements: list[Measurement] = []
    rejected: list[tuple[Sweep, SweepPoint, str]] = []
    for _, sweeps in matrix.by_link:
        everything_stored = not fresh and all(
            find_valid_run(store, sweep, point) for sweep in sweeps for point in sweep.points
        )
        if not everything_stored:
            for sweep in sweeps:
                check_allowed(sweep.workload)  # before a lab is created for it
        planned = sweeps[0].place
        with contextlib.nullcontext(planned) if everything_stored else planned.up() as place:
            for sweep in sweeps:
                runner = _SweepRetrier(
                    replace(sweep, place=place), matrix.attempts, meter, on_event
                )
                measurements += runner.run(store, fresh=fresh)
                rejected += [
                    (sweep, point, reason) for point, reason in runner.reasons_by_point.items()
                ]
    return MatrixResult(tuple(measurements), tuple(rejected))


def find_valid_run(store: ResultsStore, sweep: Sweep, point: SweepPoint) -> Measurement | None:
    """Return the stored run of a point, or None if there is none or it is not valid."""
    run = find_stored_run(store, point, ValidityCheck(sweep.workload))
    return None if run is None or run.doubt else run


class _SweepRetrier:
    """Runs one sweep, and repeats the points that have no valid run yet."""

    def __init__(
        self,
        sweep: Sweep,
        max_attempts: int,
        meter: ProgressMeter,
        on_event: Callable[[SweepEvent], None],
    ) -> None:
        self._sweep, self._remaining_attempts = sweep, max_attempts
        self._meter, self._on_event = meter, on_event
        self._measurements: dict[SweepPoint, Measurement] = {}
        self.reasons_by_point: dict[SweepPoint, str] = {}
        """Why the last run of each point without a valid run was rejected."""

    def run(self, store: ResultsStore, *, fresh: bool) -> list[Measurement]:
        missing = self._sweep.points
        while missing and self._remaining_attempts:
            self._remaining_attempts -= 1
            run_sweep(
                replace(self._sweep, points=missing),
                store,
                on_event=self._handle_event,
                fresh=fresh,
                reject_doubtful=True,
                meter=self._meter,
            )
            missing = tuple(point for point in missing if point not in self._measurements)
        points = (point for point in self._sweep.points if point in self._measurements)
        return [self._measurements[point] for point in points]

    def _handle_event(self, event: SweepEvent) -> None:
        if event.state == "rejected" and event.measurement is not None:
            self.reasons_by_point[event.point] = str(event.measurement.doubt)
            if self._remaining_attempts:  # the point is measured again
                event = replace(
                    event,
                    progress=self._meter.advance(event.point.key, 0.0, event.progress.description),
                )
        elif event.measurement is not None:
            self._measurements[event.point] = event.measurement
            self.reasons_by_point.pop(event.point, None)
        self._on_event(event)


def _count_points(spec: SweepFile) -> int:
    """Count the points before any workload file that the sweep file names is read."""
    entry_batches = (None if isinstance(entry, str) else entry.batch for entry in spec.workloads)
    batches = sum(len(set(sizes or spec.batch or (1,))) for sizes in entry_batches)
    per_batch = len(set(spec.nodes)) * len(spec.strategy) * len(spec.remedy) * spec.repeats
    return batches * per_batch * len(spec.links())


def _read_workloads(spec: SweepFile, directory: Path) -> Iterator[tuple[Workload, tuple[int, ...]]]:
    workloads: dict[str, Workload] = {}
    for entry in spec.workloads:
        name = entry if isinstance(entry, str) else entry.workload
        entry_batches = None if isinstance(entry, str) else entry.batch
        if name not in workloads:
            workloads[name] = read_workload(name, directory)
        workload = workloads[name]
        yield workload, entry_batches or spec.batch or (workload.batch_per_gpu,)


def _plan_place(spec: SweepFile, link: SweepLink | None) -> Place:
    if link is None:
        return LocalMachine()
    name = f"sweep-{os.getpid()}"
    return LabNodes(lab.plan_lab(max(spec.nodes), link.rate, name=name, dilation=link.dilation))
