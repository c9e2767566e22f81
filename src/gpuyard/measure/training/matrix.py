"""A sweep file as a value: the sweeps that it comes to, link by link; and running them all."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard import lab
from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure.credible import Credibility
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.measurement import Measurement
from gpuyard.measure.training.run import Judge, run_sweep, stored_run
from gpuyard.measure.training.sweep import Point, Sweep, SweepEvent, plan_sweep
from gpuyard.run.places import Here, LabNodes, Place
from gpuyard.specs import Workload
from gpuyard.specs.sweep import SweepFile, SweepLink
from gpuyard.workloads import profile_of


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

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "name": self.name,
            "attempts": self.attempts,
            "points": self.points,
            "sweeps": [sweep.describe() for sweep in self.sweeps],
        }


@dataclass(frozen=True)
class MatrixEvent:
    """What happened to one point, how many are done, and the time left for the rest."""

    sweep: Sweep
    event: SweepEvent
    done: float
    total: int
    left_seconds: float


@dataclass(frozen=True)
class Outcome:
    """What was measured, by sweep, and how many points stayed without a credible run."""

    measurements: tuple[Measurement, ...]
    rejected: tuple[tuple[Sweep, Point, str], ...]


def plan_matrix(spec: SweepFile, beside: Path) -> Matrix:
    """Check everything before anything is made or measured."""
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
            for workload, batches in _workloads(spec, beside)
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
    on_event: Callable[[MatrixEvent], None] = lambda _event: None,
    fresh: bool = False,
) -> Outcome:
    """Measure what the store lacks. What is not credible is tried again, and then left out."""
    pace = _Pace(matrix, on_event)
    measurements: list[Measurement] = []
    rejected: list[tuple[Sweep, Point, str]] = []
    for _, sweeps in matrix.by_link:
        everything_stored = not fresh and all(
            stored_run(store, point, judge_of(sweep)) for sweep in sweeps for point in sweep.points
        )
        planned = sweeps[0].place
        with contextlib.nullcontext(planned) if everything_stored else planned.up() as place:
            for sweep in sweeps:
                found, failed = _run(
                    replace(sweep, place=place), store, matrix.attempts, pace, fresh=fresh
                )
                measurements += found
                rejected += [(sweep, point, reason) for point, reason in failed.items()]
    return Outcome(tuple(measurements), tuple(rejected))


def judge_of(sweep: Sweep) -> Judge:
    """Who says which of its runs are credible."""
    return Credibility(profile_of(sweep.workload), sweep.workload.precision)


def _run(
    sweep: Sweep, store: ResultsStore, attempts: int, pace: "_Pace", *, fresh: bool
) -> tuple[list[Measurement], dict[Point, str]]:
    judge = judge_of(sweep)
    known: dict[Point, Measurement] = {}
    reasons: dict[Point, str] = {}
    todo = sweep
    for attempt in range(attempts):

        def listen(event: SweepEvent, last: bool = attempt == attempts - 1) -> None:
            if event.state == "rejected":
                reasons[event.point] = event.reason
            elif event.measurement is not None:
                known[event.point] = event.measurement
            pace.tell(sweep, event, last=last)

        run_sweep(todo, store, on_event=listen, fresh=fresh, judge=judge)
        missing = tuple(point for point in sweep.points if point not in known)
        if not missing:
            break
        todo = replace(sweep, points=missing)
    measured = [known[point] for point in sweep.points if point in known]
    return measured, {point: reasons[point] for point in sweep.points if point not in known}


class _Pace:
    """Points done, and the time left if the others take as long as those that were measured."""

    def __init__(self, matrix: Matrix, on_event: Callable[[MatrixEvent], None]) -> None:
        self._total = matrix.points
        self._tell = on_event
        self._done: dict[str, float] = {}
        self._measured = 0.0
        self._began = time.monotonic()
        self._guess = 4.0 + 1.3 * matrix.sweeps[0].seconds_per_point

    def tell(self, sweep: Sweep, event: SweepEvent, *, last: bool) -> None:
        gone = event.state != "rejected" or last
        self._done[event.point.key] = event.fraction if gone else 0.0
        if event.state == "finished" or (event.state == "rejected" and last):
            self._measured += 1
        elapsed = time.monotonic() - self._began
        each = elapsed / self._measured if self._measured else self._guess
        done = sum(self._done.values())
        left = max(0.0, self._total - done) * each
        self._tell(MatrixEvent(sweep, event, done, self._total, left))


def _workloads(spec: SweepFile, beside: Path) -> Iterator[tuple[Workload, tuple[int, ...]]]:
    for entry in spec.workloads:
        name = entry if isinstance(entry, str) else entry.workload
        own = None if isinstance(entry, str) else entry.batch
        workload = read_workload(name, beside)
        yield workload, own or spec.batch or (workload.batch_per_gpu,)


def _place(spec: SweepFile, link: SweepLink | None) -> Place:
    if link is None:
        return Here()
    name = f"sweep-{os.getpid()}"
    return LabNodes(lab.plan_lab(max(spec.nodes), link.rate, name=name, dilation=link.dilation))
