"""The best packing of a few tasks, by logic-based Benders decomposition with HiGHS.

A mixed-integer program chooses tasks and modes by what the GPU-seconds before each deadline allow. A search over
schedules in which every task begins now or when another ends then says whether those can be scheduled: some best
schedule is of that kind (it is left-shifted). If they can't, the fewest of them that can't are cut off, and the
program chooses again. What the program promises never gets less than the best, so it ends with a proof.
(Hooker, "Planning and scheduling by logic-based Benders decomposition", Operations Research 55, 2007.)
"""

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from gpuyard.jobs.policies.packing import (
    LATE_S,
    BusyGpus,
    DeadlinePacking,
    DeadlineTask,
    Mode,
    PlannedStart,
)
from gpuyard.quiet import quiet

_Choice: TypeAlias = dict[int, Mode]
"""Modes of tasks, by the tasks' numbers."""
_Running: TypeAlias = tuple[tuple[float, int], ...]
"""When each ends, and its GPUs; the first to end first."""
_Cut: TypeAlias = dict[int, list[Mode]]
_MOST_CUTS = 200
_TIE = (
    1e-3  # of the least weight: what few GPU-seconds count; weights that are closer count as equal
)
_MOST_LIFTED = 64  # combinations of modes that one cut is stretched over


class _TooLong(Exception):
    """The search was given up, without an answer."""


def improve(
    found: DeadlinePacking,
    tasks: Sequence[DeadlineTask],
    gpus: int,
    busy: Sequence[BusyGpus] = (),
    *,
    effort: int = 50_000,
) -> DeadlinePacking:
    """The best packing, proven; where that takes too long, what was found, with the bound as far as it came.

    `effort` is how many partial schedules are looked at: counted, not timed, so that the same tasks have the same
    answer on any machine.
    """
    able = [task for task in (task.within(gpus) for task in tasks) if task.modes]
    if found.proven or not all(task.complete for task in able):
        return found
    deadlines = [task.deadline_s for task in able]
    cuts: list[_Cut] = []
    bound, search = found.bound, ScheduleSearch(deadlines, gpus, busy, effort)
    for _ in range(_MOST_CUTS):
        try:
            choice, weight = _chosen(able, gpus, busy, cuts)
            bound = min(bound, weight)
            if bound <= found.weight + 1e-9:
                return DeadlinePacking(found.starts, found.weight, found.weight)
            starts = search.schedule(choice)
            if starts is not None:
                named = {able[i].id: PlannedStart(at_s, choice[i]) for i, at_s in starts.items()}
                return DeadlinePacking(named, weight, weight)
            cuts.append(_cut_off(choice, able, search))
        except _TooLong:
            break
    return DeadlinePacking(found.starts, found.weight, bound)


def _chosen(
    tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus], cuts: Sequence[_Cut]
) -> tuple[_Choice, float]:
    """The most weight that GPU-seconds and cuts allow, and with that few GPU-seconds."""
    from scipy.optimize import LinearConstraint, milp

    columns = [(i, mode) for i, task in enumerate(tasks) for mode in task.modes]
    number = {column: k for k, column in enumerate(columns)}
    used = np.array([mode.gpu_seconds for _, mode in columns])
    seconds = np.array([mode.seconds for _, mode in columns])
    widths = np.array([mode.gpus for _, mode in columns])
    rows = [np.array([float(of == i) for of, _ in columns]) for i in range(len(tasks))]
    for deadline in sorted({task.deadline_s for task in tasks}):
        due = np.array([tasks[i].deadline_s <= deadline for i, _ in columns])
        room = gpus * deadline - sum(b.gpus * min(b.seconds, deadline) for b in busy)
        rows.append(used * due / max(room, LATE_S))
        # at most q tasks that need more than 1/(q + 1) of all GPUs run beside each other
        rows += [
            seconds * due * (widths * (abreast + 1) > gpus) / (abreast * max(deadline, LATE_S))
            for abreast in (1, 2, 3)
        ]
    for cut in cuts:
        row = np.zeros(len(columns))
        for i, modes in cut.items():
            row[[number[i, mode] for mode in modes]] = 1 / max(len(cut) - 1, LATE_S)
        rows.append(row)
    weights = np.array([tasks[i].weight for i, _ in columns])
    with quiet():
        solved = milp(
            _TIE * min(weights) * used / max(used.sum(), LATE_S) - weights,
            integrality=np.ones(len(columns)),
            bounds=(0, 1),
            # a little more room than there is: it only has to be no less
            constraints=LinearConstraint(np.array(rows), -np.inf, 1 + LATE_S),
            options={"mip_rel_gap": 0.0},
        )
    if solved.x is None:
        raise _TooLong
    chosen = {i: mode for (i, mode), x in zip(columns, solved.x > 0.5, strict=True) if x}
    return chosen, float(sum(tasks[i].weight for i in chosen))


def _cut_off(choice: _Choice, tasks: Sequence[DeadlineTask], search: "ScheduleSearch") -> _Cut:
    """The fewest of the choice that can't be scheduled together, and other modes of theirs that can't either."""
    kept = dict(choice)
    for i in sorted(choice, key=lambda i: choice[i].gpu_seconds):
        fewer = {of: mode for of, mode in kept.items() if of != i}
        if search.schedule(fewer) is None:
            kept = fewer
    cut = {i: [mode] for i, mode in kept.items()}
    for i in kept:
        others = [of for of in cut if of != i]
        modes = product(*(cut[of] for of in others))
        combinations = [dict(zip(others, each, strict=True)) for each in modes]
        if len(combinations) > _MOST_LIFTED:
            break
        for mode in tasks[i].modes:
            if mode not in cut[i] and all(
                search.schedule({i: mode, **beside}) is None for beside in combinations
            ):
                cut[i].append(mode)
    return cut


class ScheduleSearch:
    """Looks for schedules of tasks in given modes, as long as its effort lasts."""

    def __init__(
        self, deadlines: Sequence[float], gpus: int, busy: Sequence[BusyGpus], effort: int
    ) -> None:
        self._deadlines = deadlines
        self._gpus = gpus
        self._busy = tuple(sorted((taken.seconds, taken.gpus) for taken in busy))
        self._left = effort
        self._choice: _Choice = {}
        self._failed: set[tuple[float, tuple[int, ...], _Running, int]] = set()

    def schedule(self, choice: _Choice) -> dict[int, float] | None:
        """When each begins so that all end in time; None where that can't be."""
        order = sorted(choice, key=lambda i: (self._deadlines[i], -choice[i].gpu_seconds))
        self._choice, self._failed = choice, set()
        return self._from(0.0, self._busy, tuple(order))

    def _from(
        self, now: float, running: _Running, left: tuple[int, ...], first: int = 0
    ) -> dict[int, float] | None:
        """Start another one now, or let time go on to the next end; those that start together do so in their order."""
        if not left:
            return {}
        state = (now, left, running, first)
        if state in self._failed:
            return None
        self._left -= 1
        if self._left < 0:
            raise _TooLong
        if self._hopeful(now, running, left):
            free = self._gpus - sum(gpus for _, gpus in running)
            for k, i in enumerate(left[first:], first):
                mode = self._choice[i]
                if mode.gpus > free:
                    continue
                after = tuple(sorted((*running, (now + mode.seconds, mode.gpus))))
                found = self._from(now, after, left[:k] + left[k + 1 :], k)
                if found is not None:
                    return {i: now, **found}
            end = running[0][0] if running else float("inf")
            # what would be over by then delays nobody: to let it wait is no better
            filler = any(
                self._choice[i].gpus <= free and now + self._choice[i].seconds <= end for i in left
            )
            if end < float("inf") and not filler:
                still = tuple(other for other in running if other[0] > end + LATE_S)
                found = self._from(end, still, left)
                if found is not None:
                    return found
        self._failed.add(state)
        return None

    def _hopeful(self, now: float, running: _Running, left: tuple[int, ...]) -> bool:
        """Each could still be in time alone, and all of them by their GPU-seconds."""
        needed = 0.0
        for i in left:  # by their deadlines
            deadline, mode = self._deadlines[i] + LATE_S, self._choice[i]
            if now + mode.seconds > deadline or (mode.now_only and now > 0):
                return False
            needed += mode.gpu_seconds
            taken = sum(gpus * (min(end, deadline) - now) for end, gpus in running)
            if needed + taken > self._gpus * (deadline - now + LATE_S):
                return False
        return True
