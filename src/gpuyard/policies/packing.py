"""Pack tasks with deadlines onto GPUs in greedy orders, and bound the weight that any packing can reach.

Times are in seconds from now. A task runs once, without interruption, in one of its modes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

TOLERANCE_S = 1e-6  # ends are sums of floats
_WEIGHT_TOLERANCE = 1e-9
_MAX_TASKS_IN_ALL_ORDERS = 200
_Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mode:
    """A number of GPUs for a task, and how long it takes with that many."""

    gpus: int
    seconds: float
    now_only: bool = False
    """True if it continues the running job: it starts now or not at all."""

    @property
    def gpu_seconds(self) -> float:
        return self.gpus * self.seconds


@dataclass(frozen=True, slots=True)
class DeadlineTask:
    """A job that counts if it ends by its deadline."""

    id: str
    deadline_s: float
    modes: tuple[Mode, ...]
    weight: float = 1.0
    complete: bool = True
    """True if every useful mode is listed; otherwise only that with the fewest GPU-seconds is certain to be."""

    def restrict_to(self, gpus: int) -> "DeadlineTask":
        """Keep the modes that fit and are in time: first the running one, then by GPU-seconds."""
        usable = [
            m for m in self.modes if m.gpus <= gpus and m.seconds <= self.deadline_s + TOLERANCE_S
        ]
        return replace(
            self, modes=tuple(sorted(usable, key=lambda m: (not m.now_only, m.gpu_seconds)))
        )


@dataclass(frozen=True, slots=True)
class BusyGpus:
    """GPUs that are busy from now on for some time, whatever is decided."""

    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The start of a task and its mode."""

    at_s: float
    mode: Mode

    @property
    def end_s(self) -> float:
        return self.at_s + self.mode.seconds


@dataclass(frozen=True)
class DeadlinePacking:
    """Tasks that end in time, their total weight, and an upper bound on the weight of any packing."""

    starts: Mapping[str, PlannedStart]
    weight: float
    bound: float

    @property
    def gap(self) -> float:
        """The largest possible shortfall, as a share of the best weight; 0 if this packing is proven optimal."""
        return max(0.0, 1 - self.weight / self.bound) if self.bound > _WEIGHT_TOLERANCE else 0.0

    @property
    def proven(self) -> bool:
        return self.gap < _WEIGHT_TOLERANCE


class FreeGpuTimeline:
    """The number of free GPUs over time, as consecutive periods; the last one has no end."""

    def __init__(self, gpus: int, busy: Iterable[BusyGpus] = ()) -> None:
        self._count = 1
        self._times = np.full(64, np.inf)  # beginnings of periods; unused entries are infinite
        self._free = np.zeros(64, dtype=np.int64)
        self._times[0], self._free[0] = 0.0, gpus
        for block in busy:
            self.reserve(0.0, block.gpus, block.seconds)

    @property
    def free_now(self) -> int:
        return int(self._free[0])

    def earliest(self, mode: Mode) -> float:
        """Return the first time when that many are free for that long; infinity if there is none."""
        short = (self._free[: self._count] < mode.gpus).nonzero()[0]
        if not len(short):
            return 0.0
        first = float(self._times[short[0]])
        if first > 0 and first >= mode.seconds - TOLERANCE_S:
            return 0.0
        if mode.now_only:
            return float("inf")
        begins, ends = self._times[short[:-1] + 1], self._times[short[1:]]
        fits = (ends - begins >= mode.seconds - TOLERANCE_S) & (ends > begins)
        at = int(fits.argmax()) if len(fits) else 0
        # after the last period with too few free GPUs, enough stay free
        return float(begins[at] if len(fits) and fits[at] else self._times[short[-1] + 1])

    def latest(self, mode: Mode, deadline_s: float) -> float:
        """Return the last start before the deadline when that many are free for that long, or infinity."""
        if mode.now_only:
            return self.earliest(mode)
        short = (self._free[: self._count] < mode.gpus).nonzero()[0]
        begins = np.append(0.0, self._times[short + 1])
        ends = np.minimum(np.append(self._times[short], np.inf), deadline_s)
        fits = (ends - begins >= mode.seconds - TOLERANCE_S).nonzero()[0]
        return max(0.0, float(ends[fits[-1]]) - mode.seconds) if len(fits) else float("inf")

    def reserve(self, at_s: float, gpus: int, seconds: float) -> None:
        """Mark GPUs as used for that time; a negative number frees them."""
        first, last = self._split_at(at_s), self._split_at(at_s + seconds)
        self._free[first:last] -= gpus

    def _split_at(self, at_s: float) -> int:
        """Return the index of the period that begins then, creating it if necessary."""
        count = self._count
        if at_s == float("inf"):
            return count
        index = int(self._times[:count].searchsorted(at_s - TOLERANCE_S))
        if index < count and self._times[index] <= at_s + TOLERANCE_S:
            return index
        if count + 2 > len(self._times):
            self._times = np.append(self._times, np.full(count, np.inf))
            self._free = np.append(self._free, np.zeros(count, dtype=np.int64))
        self._times[index + 1 : count + 1] = self._times[index:count]
        self._free[index + 1 : count + 1] = self._free[index:count]
        self._times[index], self._free[index] = at_s, self._free[index - 1]
        self._count += 1
        return index


def pack(
    tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus] = ()
) -> DeadlinePacking:
    """Return the best of several greedy orders, each with tasks as early and as late as possible."""
    feasible = [task for task in (task.restrict_to(gpus) for task in tasks) if task.modes]
    bound, shares = bound_weight(feasible, gpus, busy)
    best = DeadlinePacking({}, 0.0, bound)
    for order, late in _list_orders(feasible, shares):
        if best.proven:
            break
        starts = _place_greedily(order, FreeGpuTimeline(gpus, busy), late=late)
        weight = sum(task.weight for task in feasible if task.id in starts)
        if weight > best.weight + _WEIGHT_TOLERANCE:
            best = DeadlinePacking(starts, weight, bound)
    return replace(best, starts=_shift_earlier(best.starts, FreeGpuTimeline(gpus, busy)))


def _place_greedily(
    order: Iterable[DeadlineTask], free: FreeGpuTimeline, *, late: bool
) -> dict[str, PlannedStart]:
    """Place each task in the mode with the fewest GPU-seconds that is in time; omit it if there is none.

    With `late`, tasks start as late as possible, which leaves the time before to tasks that are due earlier.
    """
    starts = {}
    for task in order:
        for mode in task.modes:
            at_s = free.latest(mode, task.deadline_s) if late else free.earliest(mode)
            if at_s + mode.seconds <= task.deadline_s + TOLERANCE_S:
                free.reserve(at_s, mode.gpus, mode.seconds)
                starts[task.id] = PlannedStart(at_s, mode)
                break
    return starts


def _shift_earlier(
    starts: Mapping[str, PlannedStart], free: FreeGpuTimeline
) -> dict[str, PlannedStart]:
    """Start all tasks as early as possible without changing their order."""
    shifted = {}
    for id_, start in sorted(starts.items(), key=lambda item: item[1].at_s):
        at_s = min(free.earliest(start.mode), start.at_s)
        free.reserve(at_s, start.mode.gpus, start.mode.seconds)
        shifted[id_] = PlannedStart(at_s, start.mode)
    return shifted


def bound_weight(
    tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus] = ()
) -> tuple[float, _Shares]:
    """Return an upper bound on the weight of any packing, and each task's share in it.

    Until each deadline D, the tasks due by then have at most gpus · D GPU-seconds minus those of busy GPUs. If parts of tasks
    counted, this would be a linear program. Its constraints are nested (a polymatroid, Edmonds 1970), so choosing the
    largest weight per GPU-second first solves it.
    """
    due = np.array([task.deadline_s for task in tasks])
    ends = np.unique(due)
    room = gpus * ends
    for block in busy:
        room -= block.gpus * np.minimum(ends, block.seconds)
    room = np.maximum(room, 0.0)
    first = np.searchsorted(ends, due)
    needs = np.array([min(mode.gpu_seconds for mode in task.modes) for task in tasks])
    weights = np.array([task.weight for task in tasks])
    shares = np.zeros(len(tasks))
    for i in np.argsort(-weights / np.maximum(needs, 1e-12), kind="stable"):
        granted = min(needs[i], room[first[i] :].min())
        room[first[i] :] -= granted
        shares[i] = granted / needs[i] if needs[i] > 0 else 1.0
    return float(shares @ weights), shares


def _list_orders(
    tasks: Sequence[DeadlineTask], shares: _Shares
) -> Iterator[tuple[list[DeadlineTask], bool]]:
    """Yield orders of tasks, and whether to place them late.

    The first order starts with running jobs, so that few are stopped. The second starts with the tasks that the bound
    includes whole, by deadline. Each of the others is best for some inputs.
    """
    density = [task.weight / max(task.modes[0].gpu_seconds, 1e-12) for task in tasks]
    keys = (
        lambda i: (not tasks[i].modes[0].now_only, -density[i]),
        lambda i: (shares[i] < 1, tasks[i].deadline_s if shares[i] >= 1 else -density[i]),
        lambda i: (-density[i],),
        lambda i: (tasks[i].deadline_s, -density[i]),
        lambda i: (-tasks[i].weight, tasks[i].modes[0].gpu_seconds),
        lambda i: (tasks[i].deadline_s - min(mode.seconds for mode in tasks[i].modes),),
    )
    # with many tasks, placing them early or by least slack is never the best
    few = len(tasks) <= _MAX_TASKS_IN_ALL_ORDERS
    for key in keys if few else keys[:-1]:
        order = [tasks[i] for i in sorted(range(len(tasks)), key=key)]
        if few:
            yield order, False
        yield order, True
