"""The one decision for all users of a share: which announced jobs start, and for whom GPUs are withheld.

Runners announce their jobs and learn which of them to start. The server's policy sees the jobs and leases of all users.
A decision is kept in a file, so that all processes of the owner follow the same one until something has changed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from gpuyard.share.announcements import Announcements, replace_file
from gpuyard.share.caller import Caller, groups_of
from gpuyard.share.models import WHOLE, Lease
from gpuyard.share.queue import Allowance
from gpuyard.share.schedule import (
    RUNNING,
    WAITING,
    AnnouncedJob,
    JobAnnouncement,
    ScheduleAnswer,
    StoredDecision,
    Withheld,
)
from gpuyard.share.store import Store

_FILE = "decision.json"
_LOCK = "lock"
_MAX_AGE_SECONDS = 5.0  # of a decision about the same jobs and leases: their remaining times change
_MAX_TIME_SHARE = 0.1  # of the time that decisions may take


@dataclass(frozen=True)
class Pending:
    """The GPUs that requests for leases must leave free."""

    granted: frozenset[str] = frozenset()
    """IDs of requests of jobs with an instruction to start."""
    first: tuple[Lease, ...] = ()
    """Jobs that start now and have not requested their lease yet, as requests before all others."""
    withheld: Lease | None = None
    """A waiting job that idle GPUs are withheld for, as a request."""
    ahead: frozenset[str] = frozenset()
    """IDs of requests that the policy starts now. If they waited for others, the GPUs would stay idle."""
    description: Withheld | None = None

    def insert_into(self, order: Sequence[Lease]) -> list[Lease]:
        """Return the lease queue with the jobs at their places."""
        granted = [request for request in order if request.id in self.granted]
        others = [request for request in order if request.id not in self.granted]
        ahead = [request for request in others if request.id in self.ahead]
        behind = [request for request in others if request.id not in self.ahead]
        withheld = [] if self.withheld is None else [self.withheld]
        return [*granted, *self.first, *ahead, *withheld, *behind]


class JobScheduler:
    """Decisions about announced jobs; `sort_queue` and `allowance` are those for lease requests."""

    def __init__(
        self,
        store: Store,
        sort_queue: Callable[[Sequence[Lease]], list[Lease]],
        allowance: Callable[[Sequence[Lease]], Allowance],
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._sort_queue = sort_queue
        self._allowance = allowance
        self._announcements = Announcements(store.directory, store.clock)

    def announce(
        self, caller: Caller, runner: str, jobs: Sequence[JobAnnouncement]
    ) -> ScheduleAnswer:
        """Replace the announcement of a runner, and return what it should do."""
        with self._hold_lock():
            self._announcements.write(caller, runner, jobs)
            announced = self._announcements.read()
            decision = self._decide(announced, self._store.active_leases(), is_announcement=True)
            own = {
                job.key: job.job
                for job in announced
                if (job.uid, job.runner) == (caller.uid, runner)
            }
            starts = {
                own[key].id: gpus
                for key, gpus in decision.starts.items()
                if key in own and own[key].phase == WAITING
            }
            if starts:
                self._announcements.write(caller, runner, jobs, starts)
            kept = {
                job.job.id: job.granted
                for job in announced
                if job.granted and job.key in own and job.job.phase == WAITING
            }
        return ScheduleAnswer(
            {**starts, **kept},
            {
                own[key].id: new
                for key, (before, new, _) in decision.resizes.items()
                if key in own and (own[key].phase, own[key].gpus) == (RUNNING, before)
            },
            {own[key].id: reason for key, reason in decision.reasons.items() if key in own},
        )

    def announced(self) -> list[AnnouncedJob]:
        """Return the open jobs of all users."""
        return self._announcements.read()

    def refresh(self) -> None:
        """Decide again if jobs wait and something has changed. This takes time, so it is not for transactions."""
        announced = self._announcements.read()
        if not any(job.job.phase == WAITING for job in announced):
            return
        active = self._store.active_leases()
        if not self._is_current(self._read(), self._sign(announced, active)):
            with self._hold_lock():
                self._decide(self._announcements.read(), active, is_announcement=False)

    def pending(self, active: Sequence[Lease]) -> Pending:
        """Return what lease requests have to leave free, by the last decision."""
        announced = self._announcements.read()
        if not announced:
            return Pending()
        jobs, decision = _without_leases(announced, active), self._read()
        first, withheld = [], None
        for job in jobs:
            gpus = job.granted
            if job.job.phase == WAITING:
                gpus = gpus or decision.starts.get(job.key, 0)
            if gpus:
                first.append(self._as_request(job, gpus))
            elif job.key == decision.withheld_for:
                withheld = self._as_request(job, job.job.min_gpus)
        return Pending(
            frozenset(request.id for request in _granted_requests(announced, active)),
            tuple(first),
            withheld,
            frozenset(decision.ahead),
            decision.withheld if withheld is not None else None,
        )

    def reasons(self) -> Mapping[str, str]:
        """Return why jobs wait, by their key, as the last decision says; decide nothing."""
        return self._read().reasons

    def withheld(self, active: Sequence[Lease]) -> tuple[Withheld, ...]:
        """Return for whom GPUs are kept, as far as the last decision still holds; decide nothing."""
        announced, decision = self.announced(), self._read()
        starting = tuple(
            Withheld(
                job.granted,
                job.user,
                job.job.name,
                job.granted,
                "its runner was told to start it",
                self._clock.wall(),
            )
            for job in _without_leases(announced, active)
            if job.granted
        )
        if decision.withheld is None or not announced:  # without any, no policy decides any more
            return starting
        waiting = {job.key for job in announced if job.job.phase == WAITING}
        waiting |= {lease.id for lease in active if not lease.held}
        return (*starting, decision.withheld) if decision.withheld_for in waiting else starting

    def _decide(
        self, announced: Sequence[AnnouncedJob], active: Sequence[Lease], *, is_announcement: bool
    ) -> StoredDecision:
        """Return the last decision, or a new one if that is old or about another state."""
        last, signature = self._read(), self._sign(announced, active)
        age = self._clock.boot() - last.at_boot
        if self._is_current(last, signature) and (not is_announcement or age < _MAX_AGE_SECONDS):
            return last
        from gpuyard.share.job_decisions import make_decision
        from gpuyard.share.schedule_state import ScheduleState

        start = time.monotonic()
        granted = _granted_requests(announced, active)
        starting = [
            *granted,
            *(
                self._as_request(job, job.granted)
                for job in _without_leases(announced, active)
                if job.granted
            ),
        ]
        told = {request.id for request in granted}
        order = [request for request in self._order(announced, active) if request.id not in told]
        allowance = self._allowance([*active, *order, *starting])
        for request in starting:
            allowance = allowance.subtract(request)
        state = ScheduleState(
            self._store.config,
            announced,
            active,
            order,
            starting,
            self._store.calendar(),
            allowance,
            self._clock.boot(),
            self._clock.wall(),
        )
        decision = replace(
            make_decision(state, last),
            signature=signature,
            at_boot=state.boot,
            cost_seconds=time.monotonic() - start,
        )
        replace_file(self._announcements.directory / _FILE, json.dumps(asdict(decision)))
        return decision

    def _order(self, announced: Sequence[AnnouncedJob], active: Sequence[Lease]) -> list[Lease]:
        """Return all requests in the order in which they are served, if no policy changes it."""
        requests = [
            *self._store.claimable_requests(active),
            *(
                self._as_request(job, job.job.min_gpus)
                for job in _without_leases(announced, active)
                if job.job.phase == WAITING and not job.granted
            ),
        ]
        requests.sort(key=lambda request: request.requested_at)
        return self._sort_queue(
            [replace(request, number=number) for number, request in enumerate(requests)]
        )

    def _sign(self, announced: Sequence[AnnouncedJob], active: Sequence[Lease]) -> str:
        """Return a digest of everything that changes a decision, except the passing of time."""
        rules = self._store.config.rules
        state = [
            [rules.job_policy, rules.resize_seconds, rules.explore_gpu_seconds],
            [(lease.id, lease.held, lease.until_boot) for lease in active],
            [
                (
                    each.key,
                    each.since,
                    each.granted,
                    each.job.phase,
                    each.job.gpus,
                    each.job.min_gpus,
                    each.job.max_gpus,
                    each.job.priority,
                    each.job.deadline,
                )
                for each in announced
            ],
            [reservation.number for reservation in self._store.reservations()],
            sorted(self._store.busy),
        ]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()

    def _is_current(self, decision: StoredDecision, signature: str) -> bool:
        """Return whether nothing has changed, or deciding again so soon would take too much of the time."""
        age = self._clock.boot() - decision.at_boot
        is_frequent = age < decision.cost_seconds / _MAX_TIME_SHARE
        return age >= 0 and (decision.signature == signature or is_frequent)

    def _read(self) -> StoredDecision:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            text = (self._announcements.directory / _FILE).read_bytes()
            return StoredDecision.from_document(json.loads(text))
        return StoredDecision()

    def _as_request(self, announced: AnnouncedJob, gpus: int) -> Lease:
        """Return a job as a request in the lease queue."""
        rules, job = self._store.config.rules, announced.job
        return Lease(
            number=0, id=announced.key, uid=announced.uid, user=announced.user,
            group=announced.group, pid=0, process_start=0, boot_id=self._clock.boot_id,
            command=job.name, project="", count=gpus, requested_gpus=(), parts=WHOLE,
            seconds=job.seconds, requested_at=announced.since, gpus=(), start=None,
            start_boot=None, until_boot=None, end=None, end_reason=None,
            priority=rules.priority(groups_of(announced.uid)) if rules.priorities else 0,
            idle_since_boot=None, utilization_sum=0.0, utilization_samples=0, job=job.id,
        )  # fmt: skip

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Let one process or thread decide at a time; the lock is not that of the store."""
        directory = self._announcements.directory
        directory.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _granted_requests(announced: Sequence[AnnouncedJob], active: Sequence[Lease]) -> list[Lease]:
    """Return the waiting requests of jobs with an instruction to start: their oldest ones, if they are no larger."""
    told = {(job.uid, job.job.id): job.granted for job in announced}
    return [
        lease
        for lease in active
        if lease.count <= told.pop((lease.uid, lease.job), 0) and not lease.held
    ]


def _without_leases(
    announced: Sequence[AnnouncedJob], active: Sequence[Lease]
) -> list[AnnouncedJob]:
    leased = {(lease.uid, lease.job) for lease in active if lease.job}
    return [job for job in announced if (job.uid, job.job.id) not in leased]
