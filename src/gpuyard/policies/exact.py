"""Find the best packing of a few tasks by logic-based Benders decomposition with HiGHS.

A mixed-integer program chooses tasks and modes within the GPU-seconds before each deadline. A search then decides whether
they can be scheduled. It only looks at left-shifted schedules, in which every task begins now or when another ends: one
of the best schedules is always of that kind. If the choice is infeasible, a cut excludes a smallest infeasible part of it,
and the program chooses again. The program's value is never below the optimum, so the loop ends with a proof.
(Hooker, "Planning and scheduling by logic-based Benders decomposition", Operations Research 55, 2007.)
"""

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from gpuyard.policies.packing import (
    TOLERANCE_S,
    BusyGpus,
    DeadlinePacking,
    DeadlineTask,
    Mode,
    PlannedStart,
)
from gpuyard.stdout_redirect import silence_stdout

_Choice: TypeAlias = dict[int, Mode]
"""The mode of each chosen task, by task index."""
_Running: TypeAlias = tuple[tuple[float, int], ...]
"""The end and the GPUs of each running task, ordered by end."""
_Cut: TypeAlias = dict[int, list[Mode]]
_MAX_CUTS = 200
# breaks ties by GPU-seconds, as a share of the smallest weight; closer weights count as equal
_TIE_BREAK = 1e-3
_MAX_LIFTED = 64  # combinations of modes that one cut may be extended to


class _StepLimitReached(Exception):
    """The search stopped without an answer."""


def find_best_packing(
    packing: DeadlinePacking,
    tasks: Sequence[DeadlineTask],
    gpus: int,
    busy: Sequence[BusyGpus] = (),
    *,
    max_steps: int = 50_000,
) -> DeadlinePacking:
    """Return the best packing with a proof, or else the given one with a tighter bound.

    `max_steps` limits the number of partial schedules. They are counted instead of timed, so that the same tasks have the
    same answer on every machine.
    """
    feasible = [task for task in (task.restrict_to(gpus) for task in tasks) if task.modes]
    if packing.proven or not all(task.complete for task in feasible):
        return packing
    deadlines = [task.deadline_s for task in feasible]
    cuts: list[_Cut] = []
    bound, search = packing.bound, ScheduleSearch(deadlines, gpus, busy, max_steps)
    for _ in range(_MAX_CUTS):
        try:
            choice, weight = _choose_tasks(feasible, gpus, busy, cuts)
            bound = min(bound, weight)
            if bound <= packing.weight + 1e-9:
                return DeadlinePacking(packing.starts, packing.weight, packing.weight)
            times = search.schedule(choice)
            if times is not None:
                starts = {
                    feasible[i].id: PlannedStart(at_s, choice[i]) for i, at_s in times.items()
                }
                return DeadlinePacking(starts, weight, weight)
            cuts.append(_create_cut(choice, feasible, search))
        except _StepLimitReached:
            break
    return DeadlinePacking(packing.starts, packing.weight, bound)


def _choose_tasks(
    tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus], cuts: Sequence[_Cut]
) -> tuple[_Choice, float]:
    """Choose the largest weight that GPU-seconds and cuts allow and, among equals, the fewest GPU-seconds."""
    from scipy.optimize import LinearConstraint, milp

    columns = [(i, mode) for i, task in enumerate(tasks) for mode in task.modes]
    column_index = {column: k for k, column in enumerate(columns)}
    used = np.array([mode.gpu_seconds for _, mode in columns])
    seconds = np.array([mode.seconds for _, mode in columns])
    widths = np.array([mode.gpus for _, mode in columns])
    rows = [np.array([float(task == i) for task, _ in columns]) for i in range(len(tasks))]
    for deadline in sorted({task.deadline_s for task in tasks}):
        due = np.array([tasks[i].deadline_s <= deadline for i, _ in columns])
        room = gpus * deadline - sum(b.gpus * min(b.seconds, deadline) for b in busy)
        rows.append(used * due / max(room, TOLERANCE_S))
        # at most q tasks that need more than 1/(q + 1) of all GPUs can run at once
        rows += [
            seconds
            * due
            * (widths * (parallel + 1) > gpus)
            / (parallel * max(deadline, TOLERANCE_S))
            for parallel in (1, 2, 3)
        ]
    for cut in cuts:
        row = np.zeros(len(columns))
        for i, modes in cut.items():
            row[[column_index[i, mode] for mode in modes]] = 1 / max(len(cut) - 1, TOLERANCE_S)
        rows.append(row)
    weights = np.array([tasks[i].weight for i, _ in columns])
    with silence_stdout():
        solved = milp(
            _TIE_BREAK * min(weights) * used / max(used.sum(), TOLERANCE_S) - weights,
            integrality=np.ones(len(columns)),
            bounds=(0, 1),
            # slightly relaxed, so that rounding never excludes the optimum
            constraints=LinearConstraint(np.array(rows), -np.inf, 1 + TOLERANCE_S),
            options={"mip_rel_gap": 0.0},
        )
    if solved.x is None:
        raise _StepLimitReached
    chosen = {i: mode for (i, mode), x in zip(columns, solved.x > 0.5, strict=True) if x}
    return chosen, float(sum(tasks[i].weight for i in chosen))


def _create_cut(choice: _Choice, tasks: Sequence[DeadlineTask], search: "ScheduleSearch") -> _Cut:
    """Return a minimal part of the choice that cannot be scheduled, and further modes that cannot either."""
    kept = dict(choice)
    for i in sorted(choice, key=lambda i: choice[i].gpu_seconds):
        fewer = {task: mode for task, mode in kept.items() if task != i}
        if search.schedule(fewer) is None:
            kept = fewer
    cut = {i: [mode] for i, mode in kept.items()}
    for i in kept:
        others = [task for task in cut if task != i]
        combinations = [
            dict(zip(others, modes, strict=True))
            for modes in product(*(cut[task] for task in others))
        ]
        if len(combinations) > _MAX_LIFTED:
            break
        for mode in tasks[i].modes:
            if mode not in cut[i] and all(
                search.schedule({i: mode, **rest}) is None for rest in combinations
            ):
                cut[i].append(mode)
    return cut


class ScheduleSearch:
    """Searches schedules of tasks in given modes, for at most `max_steps` steps."""

    def __init__(
        self, deadlines: Sequence[float], gpus: int, busy: Sequence[BusyGpus], max_steps: int
    ) -> None:
        self._deadlines = deadlines
        self._gpus = gpus
        self._busy = tuple(sorted((block.seconds, block.gpus) for block in busy))
        self._steps_left = max_steps
        self._choice: _Choice = {}
        self._failed: set[tuple[float, tuple[int, ...], _Running, int]] = set()

    def schedule(self, choice: _Choice) -> dict[int, float] | None:
        """Return start times with which all end in time, or None if there are none."""
        order = sorted(choice, key=lambda i: (self._deadlines[i], -choice[i].gpu_seconds))
        self._choice, self._failed = choice, set()
        return self._schedule_from(0.0, self._busy, tuple(order))

    def _schedule_from(
        self, now: float, running: _Running, waiting: tuple[int, ...], first: int = 0
    ) -> dict[int, float] | None:
        """Start another task now, or advance to the next end.

        Tasks that start together are tried in one order only: from index `first` on.
        """
        if not waiting:
            return {}
        state = (now, waiting, running, first)
        if state in self._failed:
            return None
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _StepLimitReached
        if self._may_succeed(now, running, waiting):
            free = self._gpus - sum(gpus for _, gpus in running)
            for k, i in enumerate(waiting[first:], first):
                mode = self._choice[i]
                if mode.gpus > free:
                    continue
                after = tuple(sorted((*running, (now + mode.seconds, mode.gpus))))
                rest = self._schedule_from(now, after, waiting[:k] + waiting[k + 1 :], k)
                if rest is not None:
                    return {i: now, **rest}
            end = running[0][0] if running else float("inf")
            # a task that would end by then delays no other, so letting it wait is never better
            filler = any(
                self._choice[i].gpus <= free and now + self._choice[i].seconds <= end
                for i in waiting
            )
            if end < float("inf") and not filler:
                still = tuple(other for other in running if other[0] > end + TOLERANCE_S)
                rest = self._schedule_from(end, still, waiting)
                if rest is not None:
                    return rest
        self._failed.add(state)
        return None

    def _may_succeed(self, now: float, running: _Running, waiting: tuple[int, ...]) -> bool:
        """Check that each task alone, and all of them by their GPU-seconds, could still be in time."""
        needed = 0.0
        for i in waiting:  # ordered by deadline
            deadline, mode = self._deadlines[i] + TOLERANCE_S, self._choice[i]
            if now + mode.seconds > deadline or (mode.now_only and now > 0):
                return False
            needed += mode.gpu_seconds
            held = sum(gpus * (min(end, deadline) - now) for end, gpus in running)
            if needed + held > self._gpus * (deadline - now + TOLERANCE_S):
                return False
        return True
