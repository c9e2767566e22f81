"""The event loop: jobs arrive, a policy allocates GPUs, jobs end.

Jobs start on idle GPUs at each submission and at each end, as in the live queue. Some policies move running jobs, only in
rounds: in every round in which something may have changed.

`EventLoop` may start from any state: jobs that already run or wait. `jobs.forecast` uses it that way.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuyard.errors import GpuyardError, UserMistake, quote
from gpuyard.jobs.simulate.failures import FailureModel
from gpuyard.jobs.simulate.outcome import GpuInterval, SimulationOutcome
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import GpusByMachine
from gpuyard.policies.base import Policy, QueuePolicy, WaitingQueues
from gpuyard.policies.decision import decide
from gpuyard.policies.placement import choose_gpus, release_gpus, use_gpus
from gpuyard.policies.views import Allocation, JobView, Pool
from gpuyard.units import format_duration

ProgressCallback = Callable[[int, int], None]
"""A callback that receives the number of finished jobs and the number of all jobs."""
_REPORT_EVERY = 500  # decisions
_LONG_HISTORY = 2000  # jobs
_MAX_STALLED = 10_000  # decisions in a row that neither start nor end a job
_MAX_ROUNDS = (
    3_000_000  # nearly six years of minutes: a job that takes longer has a typo in its row
)


def simulate(
    trace: Trace,
    policy: Policy,
    pool: Pool,
    on_progress: ProgressCallback | None = None,
    failures: FailureModel | None = None,
) -> SimulationOutcome:
    """Run the whole trace under this policy, with failures of machines if there is a model of them."""
    trace = trace.fit_to(pool)
    queue = policy if isinstance(policy, QueuePolicy) else _as_queue(policy, trace)
    if queue is not None:
        return _QueueLoop(trace, queue, pool, on_progress, failures).run()
    return EventLoop(trace, policy, pool, on_progress=on_progress, failures=failures).run()


def _as_queue(policy: Policy, trace: Trace) -> QueuePolicy | None:
    """Return the policy as a queue if the trace is too long to show every waiting job at each event."""
    if len(trace.jobs) < _LONG_HISTORY or any(
        job.elastic or not job.min_gpus == job.requested_gpus == job.max_gpus for job in trace.jobs
    ):
        return None
    return policy.as_queue()


@dataclass
class ActiveJob:
    """A job that was submitted and has not ended."""

    index: int  # in the trace
    job: TraceJob
    done: float = 0.0
    allocation: Allocation | None = None
    shape: GpusByMachine = ()
    racks: int = 1
    since_s: float = 0.0  # start of this allocation
    resumed_s: float = 0.0  # when it works again after its restart
    end_s: float = math.inf
    started_s: float | None = None
    attained_gpu_s: float = 0.0
    restarts: int = 0
    fails_s: float = math.inf  # when one of its machines fails
    _waiting_view: JobView | None = None  # does not change while the job waits

    def done_at(self, now_s: float) -> float:
        if self.allocation is None or now_s <= self.resumed_s:
            return self.done
        return self.job.work.after(self.done, self.shape, now_s - self.resumed_s, self.racks)

    def attained_at(self, now_s: float) -> float:
        return self.attained_gpu_s + sum(self.shape) * (now_s - self.since_s)

    def view(self, now_s: float) -> JobView:
        if self.allocation is None:
            if self._waiting_view is None:
                self._waiting_view = self.job.view(
                    self.done, None, self.started_s, self.attained_gpu_s
                )
            return self._waiting_view
        return self.job.view(
            self.done_at(now_s),
            self.allocation,
            self.started_s,
            self.attained_at(now_s),
            startup_s=max(0.0, self.resumed_s - now_s),
        )

    def run_on(
        self, allocation: Allocation, pool: Pool, *, since_s: float, resumed_s: float
    ) -> None:
        """Hold these GPUs from `since_s` on and work on them from `resumed_s` on."""
        self.allocation = allocation
        self.shape = tuple(sorted((gpus for _, gpus in allocation), reverse=True))
        self.racks = pool.count_racks(allocation)
        self.since_s, self.resumed_s = since_s, resumed_s
        self.end_s = resumed_s + self.job.work.seconds(self.done, self.shape, self.racks)

    def move(self, allocation: Allocation | None, now_s: float, pool: Pool) -> None:
        """Move to other GPUs, or to none."""
        self.done, self.attained_gpu_s = self.done_at(now_s), self.attained_at(now_s)
        self._waiting_view = None
        self.fails_s = math.inf
        if allocation is None:
            self.allocation, self.shape, self.racks = None, (), 1
            self.since_s, self.end_s = now_s, math.inf
            return
        if self.started_s is None:
            self.started_s = now_s
        else:
            self.restarts += 1
        self.run_on(allocation, pool, since_s=now_s, resumed_s=now_s + self.job.restart_s)

    def fail(self, model: FailureModel) -> float:
        """Go back to the last checkpoint when a machine fails; return the seconds that this costs."""
        before_s = self.end_s
        self.done = model.find_saved(
            self.job.work, self.done, self.shape, self.racks, self.fails_s - self.resumed_s
        )
        self.restarts += 1
        self.resumed_s = self.fails_s + model.restart_s
        self.end_s = self.resumed_s + self.job.work.seconds(self.done, self.shape, self.racks)
        return self.end_s - before_s


@dataclass
class _Record:
    """The history of each job so far."""

    trace: Trace
    intervals: list[GpuInterval] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.trace.jobs)
        self.started_s = np.full(count, math.nan)
        self.ended_s = np.full(count, math.nan)
        self.gpu_seconds = np.zeros(count)
        self.restarts = np.zeros(count, dtype=np.int64)
        self.failures = 0
        self.lost_gpu_seconds = 0.0

    def outcome(self, policy: str, pool: Pool, decisions: int) -> SimulationOutcome:
        return SimulationOutcome(
            policy, self.trace, pool, self.started_s, self.ended_s, self.gpu_seconds,
            self.restarts, tuple(self.intervals), decisions, self.failures, self.lost_gpu_seconds,
        )  # fmt: skip


class EventLoop:
    """The loop for policies that may move jobs.

    `active` is the state at the beginning: the trace's first jobs, which already run or wait.
    """

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        pool: Pool,
        *,
        active: Sequence[ActiveJob] = (),
        on_progress: ProgressCallback | None = None,
        failures: FailureModel | None = None,
    ) -> None:
        self.trace, self.policy, self.pool, self.on_progress = trace, policy, pool, on_progress
        self.failures = failures
        self.record = _Record(trace)
        self.active = {job.job.id: job for job in active}
        self.arrived = len(active)
        self.decisions = 0
        self.stalled = 0
        self.next_round_s = -math.inf

    def run(self) -> SimulationOutcome:
        now_s = self.first_decision()
        changed = True  # since the last round: the policy has not seen the initial state
        while True:
            event = self._advance(now_s)
            changed = event or changed
            if self.is_finished():
                break
            moved = False
            if self.is_round(now_s):
                is_due = changed or not self.policy.only_on_change
                if self.active and is_due and self._can_decide():
                    moved = self._decide(now_s)
                self.next_round_s, changed = now_s + (self.policy.round_s or 0.0), False
            elif event and self._can_decide():
                moved = self._start_waiting(now_s)
            next_s = self.next_decision(now_s, changed or event or moved)
            if next_s == math.inf:
                break
            now_s = next_s
        for job in self.active.values():
            self._record_interval(job, now_s)
        return self.record.outcome(self.policy.name, self.pool, self.decisions)

    def first_decision(self) -> float:
        return self.trace.jobs[0].submitted_s if self.trace.jobs else 0.0

    def is_round(self, now_s: float) -> bool:
        """Return whether the policy may move running jobs; between rounds, jobs only start on idle GPUs."""
        return self.policy.round_s is None or now_s >= self.next_round_s

    def is_finished(self) -> bool:
        return not self.active and self.arrived == len(self.trace.jobs)

    def next_decision(self, now_s: float, changed: bool) -> float:
        """Return the next round, or the first one after the next event; infinity stops the loop."""
        jobs = self.trace.jobs
        arrival_s = jobs[self.arrived].submitted_s if self.arrived < len(jobs) else math.inf
        end_s = min((min(job.end_s, job.fails_s) for job in self.active.values()), default=math.inf)
        event_s = min(arrival_s, end_s)
        if self.policy.round_s is not None and self.active and not self.policy.only_on_change:
            if math.isinf(event_s) and not changed:
                self.stalled += 1
            if event_s - now_s > _MAX_ROUNDS * self.policy.round_s and math.isfinite(event_s):
                longest = max(self.active.values(), key=lambda job: job.end_s)
                raise UserMistake(
                    f"{self.trace.name}: job {quote(longest.job.id)} takes {format_duration(event_s - now_s)}, "
                    f"which is too many rounds for {self.policy.name}; check the job's work or use another policy"
                )
            self._check_stalled()
            return max(min(event_s, self.next_round_s), now_s)
        if changed and self.policy.round_s is not None and self.active:
            event_s = min(event_s, self.next_round_s)
        if math.isinf(event_s):
            self.stalled = _MAX_STALLED + 1
        self._check_stalled()
        return max(event_s, now_s)

    def _check_stalled(self) -> None:
        if self.stalled > _MAX_STALLED:
            waiting = ", ".join(list(self.active)[:5])
            raise GpuyardError(
                f"policy {self.policy.name} leaves jobs waiting forever on {self.pool.gpus} GPUs: {waiting}"
            )

    def _advance(self, now_s: float) -> bool:
        """Process failures, ends, and submissions up to now, and return whether there were ends or submissions."""
        if self.failures is not None:
            self._fail_jobs(now_s, self.failures)
        ended = [job for job in self.active.values() if job.end_s <= now_s]
        for job in ended:
            del self.active[job.job.id]
            self._record_interval(job, job.end_s)
            self.record.started_s[job.index] = job.started_s
            self.record.ended_s[job.index] = job.end_s
            self.record.gpu_seconds[job.index] = job.attained_at(job.end_s)
            self.record.restarts[job.index] = job.restarts
        first = self.arrived
        jobs = self.trace.jobs
        while self.arrived < len(jobs) and jobs[self.arrived].submitted_s <= now_s:
            arrival = jobs[self.arrived]
            self.active[arrival.id] = ActiveJob(self.arrived, arrival, since_s=now_s)
            self.arrived += 1
        return bool(ended) or self.arrived > first

    def _fail_jobs(self, now_s: float, model: FailureModel) -> None:
        for job in self.active.values():
            while job.allocation is not None and job.fails_s <= now_s and job.fails_s < job.end_s:
                self.record.failures += 1
                self.record.lost_gpu_seconds += sum(job.shape) * job.fail(model)
                job.fails_s = model.next_failure(job.allocation, self.pool, job.fails_s)

    def _can_decide(self) -> bool:
        """Return False if jobs that must not be stopped hold all GPUs."""
        held = 0
        for job in self.active.values():
            if job.allocation is not None:
                if job.job.elastic:
                    return True
                held += sum(job.shape)
        return held < self.pool.gpus

    def _decide(self, now_s: float) -> bool:
        """Ask the policy, move jobs, and return whether any moved."""
        self.decisions += 1
        if self.on_progress and self.decisions % _REPORT_EVERY == 0:
            self.on_progress(self.arrived - len(self.active), len(self.trace.jobs))
        views = [job.view(now_s) for job in self.active.values()]
        placed = self.policy.place(self.policy.allocate(views, self.pool, now_s), views, self.pool)
        return self._move(placed, now_s)

    def _start_waiting(self, now_s: float) -> bool:
        """Start waiting jobs on idle GPUs, as the live queue does between two rounds."""
        self.decisions += 1
        views = [job.view(now_s) for job in self.active.values()]
        starts = decide(views, self.policy, self.pool, now_s).starts
        if not starts:
            return False
        gpus = {**{view.id: view.gpus for view in views if view.running}, **starts}
        placed = self.policy.place(gpus, views, self.pool)
        running = {view.id: view.allocation for view in views if view.allocation is not None}
        return self._move({**placed, **running}, now_s)

    def _move(self, placed: Mapping[str, Allocation], now_s: float) -> bool:
        moved = False
        for job in self.active.values():
            allocation = placed.get(job.job.id)
            if allocation != job.allocation:
                self._record_interval(job, now_s)
                job.move(allocation, now_s, self.pool)
                if self.failures is not None and allocation is not None:
                    job.fails_s = self.failures.next_failure(allocation, self.pool, now_s)
                moved = True
        return moved

    def _record_interval(self, job: ActiveJob, end_s: float) -> None:
        if job.allocation is not None:
            self.record.intervals.append(GpuInterval(job.index, sum(job.shape), job.since_s, end_s))


class _QueueLoop:
    """The loop for policies that start jobs in order and never move them: two events per job.

    Its cost does not depend on how many jobs wait, which makes long histories feasible.
    """

    def __init__(
        self,
        trace: Trace,
        policy: QueuePolicy,
        pool: Pool,
        on_progress: ProgressCallback | None,
        failures: FailureModel | None = None,
    ) -> None:
        self.trace, self.policy, self.pool, self.on_progress = trace, policy, pool, on_progress
        self.failures = failures
        self.record = _Record(trace)
        self.queues = WaitingQueues(policy)
        self.free = np.array(pool.gpus_by_machine, dtype=np.int64)
        self.racks = None if pool.racks is None else np.array(pool.racks)
        self.ends: list[tuple[float, int, Allocation, str]] = []
        self.decisions = 0

    def run(self) -> SimulationOutcome:
        jobs = self.trace.jobs
        indices = {job.id: index for index, job in enumerate(jobs)}
        arrived, free = 0, self.pool.gpus
        while arrived < len(jobs) or self.ends:
            arrival_s = jobs[arrived].submitted_s if arrived < len(jobs) else math.inf
            event_s = min(arrival_s, self.ends[0][0] if self.ends else math.inf)
            now_s = event_s
            while self.ends and self.ends[0][0] <= now_s:
                _, _, allocation, key = heapq.heappop(self.ends)
                gpus = sum(n for _, n in allocation)
                release_gpus(self.free, allocation)
                self.queues.hold(key, -gpus)
                free += gpus
            while arrived < len(jobs) and jobs[arrived].submitted_s <= now_s:
                self.queues.add(jobs[arrived].view(0.0, None, None, 0.0))
                arrived += 1
            for view in self.queues.start(free):
                self._start(indices[view.id], view, now_s)
                free -= view.requested_gpus
            self.decisions += 1
            if self.on_progress and self.decisions % _REPORT_EVERY == 0:
                self.on_progress(arrived, len(jobs))
        return self.record.outcome(self.policy.name, self.pool, self.decisions)

    def _start(self, index: int, view: JobView, now_s: float) -> None:
        job = self.trace.jobs[index]
        allocation = choose_gpus(self.free, job.requested_gpus, self.racks)
        use_gpus(self.free, allocation)
        active = ActiveJob(index, job)
        active.run_on(allocation, self.pool, since_s=now_s, resumed_s=now_s + job.restart_s)
        if self.failures is not None:
            self._fail(active, allocation, self.failures)
        end_s = active.end_s
        heapq.heappush(self.ends, (end_s, index, allocation, self.policy.queue_key(view)))
        self.record.started_s[index] = now_s
        self.record.ended_s[index] = end_s
        self.record.restarts[index] = active.restarts
        self.record.gpu_seconds[index] = job.requested_gpus * (end_s - now_s)
        self.record.intervals.append(GpuInterval(index, job.requested_gpus, now_s, end_s))

    def _fail(self, job: ActiveJob, allocation: Allocation, model: FailureModel) -> None:
        """Play all failures of a job that has just started: it keeps its machines until it ends."""
        job.fails_s = model.next_failure(allocation, self.pool, job.since_s)
        while job.fails_s < job.end_s < math.inf:
            self.record.failures += 1
            self.record.lost_gpu_seconds += sum(job.shape) * job.fail(model)
            job.fails_s = model.next_failure(allocation, self.pool, job.fails_s)
