"""Which jobs can be finished in time on so many GPUs, and when each has to start: tasks with deadlines, packed in
greedy orders, and a weight that no packing can pass.

Times are in seconds from now. A task runs once, without a stop, in one of its modes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

LATE_S = 1e-6  # ends are sums of floats
_LIGHT = 1e-9
_MANY = 200  # tasks
_Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mode:
    """One number of GPUs for a task, and how long it then takes."""

    gpus: int
    seconds: float
    now_only: bool = False
    """It goes on as it runs: from now, or not at all."""

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
    """Has every mode that could be of use; else only the one of the fewest GPU-seconds is sure to be there."""

    def within(self, gpus: int) -> "DeadlineTask":
        """With the modes that are quick and narrow enough: to go on as it runs, then by GPU-seconds."""
        usable = [m for m in self.modes if m.gpus <= gpus and m.seconds <= self.deadline_s + LATE_S]
        return replace(
            self, modes=tuple(sorted(usable, key=lambda m: (not m.now_only, m.gpu_seconds)))
        )


@dataclass(frozen=True, slots=True)
class BusyGpus:
    """GPUs that are taken from now for so long, whatever is decided."""

    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When a task begins, and in which mode."""

    at_s: float
    mode: Mode

    @property
    def end_s(self) -> float:
        return self.at_s + self.mode.seconds


@dataclass(frozen=True)
class DeadlinePacking:
    """Tasks that end in time, their weight together, and what no packing can pass."""

    starts: Mapping[str, PlannedStart]
    weight: float
    bound: float

    @property
    def gap(self) -> float:
        """At most this share of the best weight is missing; 0 where none is proven to be better."""
        return max(0.0, 1 - self.weight / self.bound) if self.bound > _LIGHT else 0.0

    @property
    def proven(self) -> bool:
        return self.gap < _LIGHT


class FreeGpus:
    """How many GPUs are free from now on: stretches of time, each with its beginning, the last without an end."""

    def __init__(self, gpus: int, busy: Iterable[BusyGpus] = ()) -> None:
        self._count = 1
        self._times = np.full(
            64, np.inf
        )  # beginnings; the first one past the last stretch is its end
        self._free = np.zeros(64, dtype=np.int64)
        self._times[0], self._free[0] = 0.0, gpus
        for taken in busy:
            self.take(0.0, taken.gpus, taken.seconds)

    @property
    def free_now(self) -> int:
        return int(self._free[0])

    def earliest(self, mode: Mode) -> float:
        """When that many are free for that long; infinite where never."""
        short = (self._free[: self._count] < mode.gpus).nonzero()[0]
        if not len(short):
            return 0.0
        first = float(self._times[short[0]])
        if first > 0 and first >= mode.seconds - LATE_S:
            return 0.0
        if mode.now_only:
            return float("inf")
        begins, ends = self._times[short[:-1] + 1], self._times[short[1:]]
        fits = (ends - begins >= mode.seconds - LATE_S) & (ends > begins)
        at = int(fits.argmax()) if len(fits) else 0
        # after the last stretch that is short, all of them are free for ever
        return float(begins[at] if len(fits) and fits[at] else self._times[short[-1] + 1])

    def latest(self, mode: Mode, deadline_s: float) -> float:
        """When that many are free for the last time for that long before the deadline; infinite where never."""
        if mode.now_only:
            return self.earliest(mode)
        short = (self._free[: self._count] < mode.gpus).nonzero()[0]
        begins = np.append(0.0, self._times[short + 1])
        ends = np.minimum(np.append(self._times[short], np.inf), deadline_s)
        fits = (ends - begins >= mode.seconds - LATE_S).nonzero()[0]
        return max(0.0, float(ends[fits[-1]]) - mode.seconds) if len(fits) else float("inf")

    def take(self, at_s: float, gpus: int, seconds: float) -> None:
        """They are no longer free from then on, for so long."""
        first, last = self._cut(at_s), self._cut(at_s + seconds)
        self._free[first:last] -= gpus

    def _cut(self, at_s: float) -> int:
        """The number of the stretch that begins then."""
        count = self._count
        if at_s == float("inf"):
            return count
        index = int(self._times[:count].searchsorted(at_s - LATE_S))
        if index < count and self._times[index] <= at_s + LATE_S:
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
    """The best of several greedy orders, each with tasks put as early and as late as they can be."""
    able = [task for task in (task.within(gpus) for task in tasks) if task.modes]
    bound, shares = weight_bound(able, gpus, busy)
    best = DeadlinePacking({}, 0.0, bound)
    for order, late in _orders(able, shares):
        if best.proven:
            break
        starts = _placed(order, FreeGpus(gpus, busy), late=late)
        weight = sum(task.weight for task in able if task.id in starts)
        if weight > best.weight + _LIGHT:
            best = DeadlinePacking(starts, weight, bound)
    return replace(best, starts=_shifted(best.starts, FreeGpus(gpus, busy)))


def _placed(
    order: Iterable[DeadlineTask], free: FreeGpus, *, late: bool
) -> dict[str, PlannedStart]:
    """Each in the mode of the fewest GPU-seconds that is in time; else it is left out.

    As late as it can be: then the time before is left to those that are due before.
    """
    starts = {}
    for task in order:
        for mode in task.modes:
            at_s = free.latest(mode, task.deadline_s) if late else free.earliest(mode)
            if at_s + mode.seconds <= task.deadline_s + LATE_S:
                free.take(at_s, mode.gpus, mode.seconds)
                starts[task.id] = PlannedStart(at_s, mode)
                break
    return starts


def _shifted(starts: Mapping[str, PlannedStart], free: FreeGpus) -> dict[str, PlannedStart]:
    """All earlier, as far as that goes without a change of their order."""
    shifted = {}
    for id_, start in sorted(starts.items(), key=lambda item: item[1].at_s):
        at_s = min(free.earliest(start.mode), start.at_s)
        free.take(at_s, start.mode.gpus, start.mode.seconds)
        shifted[id_] = PlannedStart(at_s, start.mode)
    return shifted


def weight_bound(
    tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus] = ()
) -> tuple[float, _Shares]:
    """No packing has more weight than this, which a part of each task would have.

    By each deadline D, tasks that are due then have at most gpus · D GPU-seconds, of which those that are busy take theirs. With
    parts of tasks allowed that is a linear program; as its constraints are nested, taking the most weight per
    GPU-second first solves it (a polymatroid: Edmonds 1970).
    """
    due = np.array([task.deadline_s for task in tasks])
    ends = np.unique(due)
    room = gpus * ends
    for taken in busy:
        room -= taken.gpus * np.minimum(ends, taken.seconds)
    room = np.maximum(room, 0.0)
    first = np.searchsorted(ends, due)
    needs = np.array([min(mode.gpu_seconds for mode in task.modes) for task in tasks])
    weights = np.array([task.weight for task in tasks])
    shares = np.zeros(len(tasks))
    for i in np.argsort(-weights / np.maximum(needs, 1e-12), kind="stable"):
        given = min(needs[i], room[first[i] :].min())
        room[first[i] :] -= given
        shares[i] = given / needs[i] if needs[i] > 0 else 1.0
    return float(shares @ weights), shares


def _orders(
    tasks: Sequence[DeadlineTask], shares: _Shares
) -> Iterator[tuple[list[DeadlineTask], bool]]:
    """And whether each is to be put late. What runs comes first, so that little is stopped; then those that the bound
    takes whole, by their deadlines, and others that are best at times."""
    density = [task.weight / max(task.modes[0].gpu_seconds, 1e-12) for task in tasks]
    every = range(len(tasks))
    keys = (
        lambda i: (not tasks[i].modes[0].now_only, -density[i]),
        lambda i: (shares[i] < 1, tasks[i].deadline_s if shares[i] >= 1 else -density[i]),
        lambda i: (-density[i],),
        lambda i: (tasks[i].deadline_s, -density[i]),
        lambda i: (-tasks[i].weight, tasks[i].modes[0].gpu_seconds),
        lambda i: (tasks[i].deadline_s - min(mode.seconds for mode in tasks[i].modes),),
    )
    few = (
        len(tasks) <= _MANY
    )  # of many, what is put early and what has least slack is never the best
    for key in keys if few else keys[:-1]:
        order = [tasks[i] for i in sorted(every, key=key)]
        if few:
            yield order, False
        yield order, True
