"""A sweep file as a value: the sweeps that it comes to, link by link; and running them all."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard import lab
from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure.credible import Credibility
from gpuyard.measure.progress import ProgressMeter
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep, stored_run, sweep_meter
from gpuyard.measure.training.sweep import Sweep, SweepEvent, SweepPoint, check_points, plan_sweep
from gpuyard.run.places import Here, LabNodes, Place
from gpuyard.specs import Workload
from gpuyard.specs.sweep import SweepFile, SweepLink
from gpuyard.workloads.own_code import check_allowed


@dataclass(frozen=True)
class Matrix:
    """All combinations, those of one link together, so that each lab is made once."""

    name: str
    by_link: tuple[tuple[SweepLink | None, tuple[Sweep, ...]], ...]
    attempts: int

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return tuple(sweep for _, sweeps in self.by_link for sweep in sweeps)

    @property
    def points(self) -> int:
        return sum(len(sweep.points) for sweep in self.sweeps)

    def stored_keys(self, store: ResultsStore) -> set[str]:
        """Of the points that have a credible run already."""
        return {
            point.key
            for sweep in self.sweeps
            for point in sweep.points
            if credible_run(store, sweep, point) is not None
        }

    def describe(self, stored: Collection[str] | None = None) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "name": self.name,
            "attempts": self.attempts,
            "points": self.points,
            "sweeps": [sweep.describe(stored) for sweep in self.sweeps],
        }


@dataclass(frozen=True)
class MatrixResult:
    """What was measured, by sweep, and how many points stayed without a credible run."""

    measurements: tuple[Measurement, ...]
    rejected: tuple[tuple[Sweep, SweepPoint, str], ...]


def plan_matrix(spec: SweepFile, directory: Path) -> Matrix:
    """Check everything before anything is made or measured."""
    check_points(_count(spec))
    workloads = tuple(_workloads(spec, directory))
    by_link = []
    for link in spec.links():
        place = _place(spec, link)
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
    """Measure what the store lacks. What is not credible is tried again, and then left out."""
    meter = sweep_meter(matrix.sweeps)
    measurements: list[Measurement] = []
    rejected: list[tuple[Sweep, SweepPoint, str]] = []
    for _, sweeps in matrix.by_link:
        everything_stored = not fresh and all(
            credible_run(store, sweep, point) for sweep in sweeps for point in sweep.points
        )
        if not everything_stored:
            for sweep in sweeps:
                check_allowed(sweep.workload)  # before a lab is made for it
        planned = sweeps[0].place
        with contextlib.nullcontext(planned) if everything_stored else planned.up() as place:
            for sweep in sweeps:
                attempts = _Attempts(replace(sweep, place=place), matrix.attempts, meter, on_event)
                measurements += attempts.run(store, fresh=fresh)
                rejected += [(sweep, *failed) for failed in attempts.failed.items()]
    return MatrixResult(tuple(measurements), tuple(rejected))


def credible_run(store: ResultsStore, sweep: Sweep, point: SweepPoint) -> Measurement | None:
    """What the store has of a point, if it is to be believed."""
    found = stored_run(store, point, Credibility(sweep.workload))
    return None if found is None or found.doubt else found


class _Attempts:
    """One sweep, again and again for the points of which no run is credible yet."""

    def __init__(
        self, sweep: Sweep, most: int, meter: ProgressMeter, on_event: Callable[[SweepEvent], None]
    ) -> None:
        self._sweep, self._left = sweep, most
        self._meter, self._on_event = meter, on_event
        self._known: dict[SweepPoint, Measurement] = {}
        self.failed: dict[SweepPoint, str] = {}

    def run(self, store: ResultsStore, *, fresh: bool) -> list[Measurement]:
        missing = self._sweep.points
        while missing and self._left:
            self._left -= 1
            todo = replace(self._sweep, points=missing)
            run_sweep(
                todo,
                store,
                on_event=self._listen,
                fresh=fresh,
                reject_doubtful=True,
                meter=self._meter,
            )
            missing = tuple(point for point in missing if point not in self._known)
        return [self._known[point] for point in self._sweep.points if point in self._known]

    def _listen(self, event: SweepEvent) -> None:
        if event.state == "rejected" and event.measurement is not None:
            self.failed[event.point] = str(event.measurement.doubt)
            if self._left:  # it is done again
                event = replace(
                    event, progress=self._meter.at(event.point.key, 0.0, event.progress.what)
                )
        elif event.measurement is not None:
            self._known[event.point] = event.measurement
            self.failed.pop(event.point, None)
        self._on_event(event)


def _count(spec: SweepFile) -> int:
    """How many points it comes to, before any file that it names is read."""
    own = (None if isinstance(entry, str) else entry.batch for entry in spec.workloads)
    batches = sum(len(set(listed or spec.batch or (1,))) for listed in own)
    each = len(set(spec.nodes)) * len(spec.strategy) * len(spec.remedy) * spec.repeats
    return batches * each * len(spec.links())


def _workloads(spec: SweepFile, directory: Path) -> Iterator[tuple[Workload, tuple[int, ...]]]:
    read: dict[str, Workload] = {}
    for entry in spec.workloads:
        name = entry if isinstance(entry, str) else entry.workload
        own = None if isinstance(entry, str) else entry.batch
        if name not in read:
            read[name] = read_workload(name, directory)
        workload = read[name]
        yield workload, own or spec.batch or (workload.batch_per_gpu,)


def _place(spec: SweepFile, link: SweepLink | None) -> Place:
    if link is None:
        return Here()
    name = f"sweep-{os.getpid()}"
    return LabNodes(lab.plan_lab(max(spec.nodes), link.rate, name=name, dilation=link.dilation))
