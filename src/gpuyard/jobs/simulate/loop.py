"""The event loop: jobs come, a policy deals GPUs, jobs end.

A policy that decides in rounds is asked at each round in which something may have changed; one that decides by
event, at each submission and each end. Between two decisions nothing is computed but the next end.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.jobs.policies.base import Allocation, JobView, Policy, Pool, QueuePolicy, WaitingLines
from gpuyard.jobs.policies.placement import choose, take
from gpuyard.jobs.simulate.outcome import SimulationOutcome, Stay
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import GpusByMachine
from gpuyard.units import format_duration

_Tell = Callable[[int, int], None]
"""How many jobs are over, of how many."""
_TELL_EVERY = 500  # decisions
_LONG_HISTORY = 2000  # jobs
_MOST_STALLED = 10_000  # decisions in a row that neither run nor end anything
_MOST_ROUNDS = 3_000_000  # nearly six years of minutes: who takes longer has a slip in its line


def simulate(
    trace: Trace, policy: Policy, pool: Pool, tell: _Tell | None = None
) -> SimulationOutcome:
    """The whole trace under this policy."""
    trace = trace.fitting(pool)
    queue = policy if isinstance(policy, QueuePolicy) else _queue_of(trace, policy)
    if queue is not None:
        return _Queue(trace, queue, pool, tell).run()
    return _Rounds(trace, policy, pool, tell).run()


def _queue_of(trace: Trace, policy: Policy) -> QueuePolicy | None:
    """The policy as a queue, for a history that is too long to show all who wait at each event."""
    if len(trace.jobs) < _LONG_HISTORY or any(
        job.elastic or not job.least_gpus == job.asked_gpus == job.most_gpus for job in trace.jobs
    ):
        return None
    return policy.as_queue()


def _round(time_s: float, every_s: float | None) -> float:
    """The first round at or after that time."""
    return math.ceil(time_s / every_s) * every_s if every_s else time_s


@dataclass
class _Running:
    """A job that was submitted and is not over."""

    at: int
    job: TraceJob
    done: float = 0.0
    allocation: Allocation | None = None
    shape: GpusByMachine = ()
    racks: int = 1
    since_s: float = 0.0  # of this allocation
    resumed_s: float = 0.0  # when it works again after its restart
    end_s: float = math.inf
    started_s: float | None = None
    attained_gpu_s: float = 0.0
    restarts: int = 0
    waiting: JobView | None = None  # as it is seen while it waits, which does not change

    def done_at(self, now_s: float) -> float:
        if self.allocation is None or now_s <= self.resumed_s:
            return self.done
        return self.job.work.after(self.done, self.shape, now_s - self.resumed_s, self.racks)

    def attained_at(self, now_s: float) -> float:
        return self.attained_gpu_s + sum(self.shape) * (now_s - self.since_s)

    def view(self, now_s: float) -> JobView:
        if self.allocation is None:
            if self.waiting is None:
                self.waiting = self.job.view(self.done, None, self.started_s, self.attained_gpu_s)
            return self.waiting
        return self.job.view(
            self.done_at(now_s),
            self.allocation,
            self.started_s,
            self.attained_at(now_s),
            starting_s=max(0.0, self.resumed_s - now_s),
        )

    def move(self, allocation: Allocation | None, now_s: float, pool: Pool) -> None:
        """To other GPUs, or to none."""
        self.done, self.attained_gpu_s = self.done_at(now_s), self.attained_at(now_s)
        self.racks = pool.racks_of(allocation or ())
        self.allocation, self.waiting = allocation, None
        self.since_s = now_s
        if allocation is None:
            self.shape, self.end_s = (), math.inf
            return
        self.shape = tuple(sorted((gpus for _, gpus in allocation), reverse=True))
        if self.started_s is None:
            self.started_s = now_s
        else:
            self.restarts += 1
        self.resumed_s = now_s + self.job.restart_s
        self.end_s = self.resumed_s + self.job.work.seconds(self.done, self.shape, self.racks)


@dataclass
class _Record:
    """What is kept of each job."""

    trace: Trace
    stays: list[Stay] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.trace.jobs)
        self.started_s = np.full(count, math.nan)
        self.ended_s = np.full(count, math.nan)
        self.gpu_seconds = np.zeros(count)
        self.restarts = np.zeros(count, dtype=np.int64)

    def outcome(self, policy: str, pool: Pool, decisions: int) -> SimulationOutcome:
        return SimulationOutcome(
            policy, self.trace, pool, self.started_s, self.ended_s, self.gpu_seconds,
            self.restarts, tuple(self.stays), decisions,
        )  # fmt: skip


class _Rounds:
    """For policies that may move jobs."""

    def __init__(self, trace: Trace, policy: Policy, pool: Pool, tell: _Tell | None) -> None:
        self.trace, self.policy, self.pool, self.tell = trace, policy, pool, tell
        self.record = _Record(trace)
        self.active: dict[str, _Running] = {}
        self.arrived = 0
        self.decisions = 0
        self.stalled = 0

    def run(self) -> SimulationOutcome:
        now_s = (
            _round(self.trace.jobs[0].submitted_s, self.policy.round_s) if self.trace.jobs else 0.0
        )
        while True:
            changed = self._advance(now_s)
            if not self.active and self.arrived == len(self.trace.jobs):
                return self.record.outcome(self.policy.name, self.pool, self.decisions)
            moved = False
            if self.active and (changed or not self.policy.only_on_change) and self._open():
                moved = self._decide(now_s)
            now_s = self._next(now_s, changed or moved)

    def _advance(self, now_s: float) -> bool:
        """Ends and submissions up to now."""
        over = [running for running in self.active.values() if running.end_s <= now_s]
        for running in over:
            del self.active[running.job.id]
            self._leave(running, running.end_s)
            self.record.started_s[running.at] = running.started_s
            self.record.ended_s[running.at] = running.end_s
            self.record.gpu_seconds[running.at] = running.attained_at(running.end_s)
            self.record.restarts[running.at] = running.restarts
        first = self.arrived
        jobs = self.trace.jobs
        while self.arrived < len(jobs) and jobs[self.arrived].submitted_s <= now_s:
            job = jobs[self.arrived]
            self.active[job.id] = _Running(self.arrived, job, since_s=now_s)
            self.arrived += 1
        return bool(over) or self.arrived > first

    def _open(self) -> bool:
        """Whether there is anything to decide: all GPUs with jobs that must not be stopped leave nothing."""
        held = 0
        for running in self.active.values():
            if running.allocation is not None:
                if running.job.elastic:
                    return True
                held += sum(running.shape)
        return held < self.pool.gpus

    def _decide(self, now_s: float) -> bool:
        self.decisions += 1
        if self.tell and self.decisions % _TELL_EVERY == 0:
            self.tell(self.arrived - len(self.active), len(self.trace.jobs))
        views = [running.view(now_s) for running in self.active.values()]
        placed = self.policy.place(self.policy.allocate(views, self.pool, now_s), views, self.pool)
        moved = False
        for running in self.active.values():
            allocation = placed.get(running.job.id)
            if allocation != running.allocation:
                self._leave(running, now_s)
                running.move(allocation, now_s, self.pool)
                moved = True
        return moved

    def _leave(self, running: _Running, now_s: float) -> None:
        if running.allocation is not None and now_s > running.since_s:
            gpus = sum(running.shape)
            self.record.stays.append(Stay(running.at, gpus, running.since_s, now_s))

    def _next(self, now_s: float, changed: bool) -> float:
        """When to look again: the next round, or the first one in which something will have happened."""
        jobs = self.trace.jobs
        coming = jobs[self.arrived].submitted_s if self.arrived < len(jobs) else math.inf
        soon = min((running.end_s for running in self.active.values()), default=math.inf)
        happens = min(coming, soon)
        if self.policy.round_s is not None and self.active and not self.policy.only_on_change:
            if math.isinf(happens) and not changed:
                self.stalled += 1
            if happens - now_s > _MOST_ROUNDS * self.policy.round_s and math.isfinite(happens):
                longest = max(self.active.values(), key=lambda running: running.end_s)
                raise UserMistake(
                    f"{self.trace.name}: nothing happens for {format_duration(happens - now_s)}, as job "
                    f"{quoted(longest.job.id)} has that much to do: too many rounds for {self.policy.name}"
                )
            return self._checked(now_s + self.policy.round_s)
        if math.isinf(happens):
            self.stalled = _MOST_STALLED + 1
        return self._checked(max(_round(happens, self.policy.round_s), now_s))

    def _checked(self, next_s: float) -> float:
        if self.stalled > _MOST_STALLED:
            waiting = ", ".join(list(self.active)[:5])
            raise GpuyardError(
                f"policy {self.policy.name} leaves jobs waiting forever on {self.pool.gpus} GPUs: {waiting}"
            )
        return next_s


class _Queue:
    """For policies that start jobs in order and leave them alone: two events a job, whoever waits."""

    def __init__(self, trace: Trace, policy: QueuePolicy, pool: Pool, tell: _Tell | None) -> None:
        self.trace, self.policy, self.pool, self.tell = trace, policy, pool, tell
        self.record = _Record(trace)
        self.lines = WaitingLines(policy)
        self.free = np.array(pool.gpus_by_machine, dtype=np.int64)
        self.racks = None if pool.racks is None else np.array(pool.racks)
        self.ends: list[tuple[float, int, Allocation, str]] = []
        self.decisions = 0

    def run(self) -> SimulationOutcome:
        jobs = self.trace.jobs
        places = {job.id: at for at, job in enumerate(jobs)}
        arrived, free = 0, self.pool.gpus
        while arrived < len(jobs) or self.ends:
            coming = jobs[arrived].submitted_s if arrived < len(jobs) else math.inf
            happens = min(coming, self.ends[0][0] if self.ends else math.inf)
            now_s = _round(happens, self.policy.round_s)
            while self.ends and self.ends[0][0] <= now_s:
                _, _, allocation, line = heapq.heappop(self.ends)
                gpus = sum(n for _, n in allocation)
                take(self.free, allocation, 1)
                self.lines.hold(line, -gpus)
                free += gpus
            while arrived < len(jobs) and jobs[arrived].submitted_s <= now_s:
                self.lines.join(jobs[arrived].view(0.0, None, None, 0.0))
                arrived += 1
            for view in self.lines.start(free):
                self._start(places[view.id], view, now_s)
                free -= view.asked_gpus
            self.decisions += 1
            if self.tell and self.decisions % _TELL_EVERY == 0:
                self.tell(arrived, len(jobs))
        return self.record.outcome(self.policy.name, self.pool, self.decisions)

    def _start(self, at: int, view: JobView, now_s: float) -> None:
        job = self.trace.jobs[at]
        allocation = choose(self.free, job.asked_gpus, self.racks)
        take(self.free, allocation)
        shape = tuple(sorted((gpus for _, gpus in allocation), reverse=True))
        took_s = job.work.seconds(0.0, shape, self.pool.racks_of(allocation))
        end_s = now_s + job.restart_s + took_s
        heapq.heappush(self.ends, (end_s, at, allocation, self.policy.line_of(view)))
        self.record.started_s[at] = now_s
        self.record.ended_s[at] = end_s
        self.record.gpu_seconds[at] = job.asked_gpus * (end_s - now_s)
        self.record.stays.append(Stay(at, job.asked_gpus, now_s, end_s))
