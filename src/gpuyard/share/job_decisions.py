"""Show the server's policy the jobs and leases of all users, and record what it decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuyard.policies import JobView, Policy, Pool, get_policy
from gpuyard.policies.decision import Decision, decide
from gpuyard.share.calendar import Calendar
from gpuyard.share.config import ShareConfig
from gpuyard.share.job_views import name_lease, view_job, view_leases
from gpuyard.share.models import Lease
from gpuyard.share.queue import Allowance, waits_for_own_lease
from gpuyard.share.schedule import (
    RUNNING,
    STOPPING,
    AnnouncedJob,
    StoredDecision,
    Withheld,
)
from gpuyard.units import format_duration

_RESIZE_SECONDS = 15.0  # within which a runner learns of a resize
_MAX_WAIT_SECONDS = 86400.0  # after which a job comes first under every policy
_PRIORITY_STEP = 10_000  # between priorities of groups: a user's own priorities never count as much
_MAX_POSITIONS = 20  # places in the queue that jobs learn about; others change too often


@dataclass(frozen=True)
class ScheduleState:
    """Everything that a decision depends on."""

    config: ShareConfig
    announced: Sequence[AnnouncedJob]
    active: Sequence[Lease]
    """Leases that are held or in the queue."""
    order: Sequence[Lease]
    """Requests in the order in which they are served: those in the lease queue, and waiting jobs with their key as ID."""
    calendar: Calendar
    allowance: Allowance
    boot: float
    now: float

    @property
    def held(self) -> list[Lease]:
        return [lease for lease in self.active if lease.held]


def make_decision(state: ScheduleState, last: StoredDecision) -> StoredDecision:
    """Apply the policy once."""
    rules = state.config.rules
    policy = get_policy(rules.job_policy, explore_gpu_s=rules.explore_gpu_seconds)
    reasons: dict[str, str] = {}
    running = _view_running(state)
    waiting = _view_waiting(state, reasons)
    busy = {gpu for lease in state.held for gpu in lease.gpus}
    unreserved = {
        gpu
        for gpu in state.config.indices
        if gpu not in busy and state.calendar.free_until(gpu, -1, state.boot) > state.boot
    }
    starts = _start_on_own_reservations(state, waiting, policy, busy)
    waiting = [view for view in waiting if view.id not in starts]
    resize = _is_time_to_resize(state, policy, last)
    outcome = decide(
        [*running, *waiting],
        policy,
        Pool((len(unreserved) + len(busy),)),
        state.now,
        resize=resize,
        overdue=_find_overdue(state, waiting),
    )
    jobs = {job.key for job in state.announced}
    starts |= {key: gpus for key, gpus in outcome.starts.items() if key in jobs}
    starts = _limit_starts(state, starts, unreserved)
    resizes = {
        key: (before, new, at)
        for key, (before, new, at) in last.resizes.items()
        if state.boot - at < _RESIZE_SECONDS
    }
    for view in running:
        if view.id in outcome.resizes:
            resizes[view.id] = view.gpus, outcome.resizes[view.id], state.boot
    for position, request in enumerate(state.order, 1):
        if request.id not in starts and request.id not in reasons:
            place = f"number {position} " if position <= _MAX_POSITIONS else ""
            reasons[request.id] = f"{place}in the queue for GPUs"
    withheld_for, withheld = _describe_withheld(state, outcome, policy, running, waiting)
    return StoredDecision(
        starts=starts,
        resizes=resizes,
        resized_boot=state.boot if resize else last.resized_boot,
        reasons={key: reason for key, reason in reasons.items() if key in jobs},
        withheld_for=withheld_for,
        withheld=withheld,
    )


def _view_running(state: ScheduleState) -> list[JobView]:
    """Return the jobs and leases that hold GPUs, or have an instruction to start and will request them."""
    total = len(state.config.gpus)
    leases = {(lease.uid, lease.job): lease for lease in state.active if lease.job}
    views, known = [], set()
    for job in state.announced:
        lease = leases.get((job.uid, job.job.id))
        if lease is not None and lease.held:
            known.add(lease.id)
            view = view_job(job, len(lease.gpus), 0, total)
            views.append(replace(view, elastic=view.elastic and job.job.phase == RUNNING))
        elif lease is None and job.granted:
            views.append(replace(view_job(job, job.granted, 0, total), elastic=False))
    return [*views, *view_leases(state.held, state.boot, state.now, known)]


def _view_waiting(state: ScheduleState, reasons: dict[str, str]) -> list[JobView]:
    """Return the requests that could start now, in the order in which requests are served."""
    jobs = {job.key: job for job in state.announced}
    own_priority: dict[int, int] = {}
    for job in state.announced:
        own_priority[job.uid] = max(own_priority.get(job.uid, -(10**9)), job.job.priority)
    views: list[JobView] = []
    for request in state.order:
        announced = jobs.get(request.id)
        if waits_for_own_lease(request, state.order, state.held, state.config.indices):
            reasons[request.id] = f"waits for a lease or job of {request.user} without a time limit"
            continue
        group = state.allowance.exceeded_group(request)
        allowed = state.calendar.usable_gpus(request, state.config.indices, state.boot)
        if group is not None:
            reasons[request.id] = f"the group {group} has used up its quota"
            continue
        if len(allowed) < request.count:
            reasons[request.id] = (
                "waits for GPUs that are reserved, drained, or in use without a lease"
            )
            continue
        priority = _PRIORITY_STEP * request.priority
        if announced is None:
            (view,) = view_leases([request], state.boot, state.now)
            view = replace(view, priority=priority)
        else:
            # a user's priorities order only that user's jobs: the highest is no higher than anybody's
            priority += announced.job.priority - own_priority[announced.uid]
            most = _largest_count(state, request, announced, len(allowed))
            view = view_job(announced, None, priority, most)
        views.append(replace(view, submitted_s=float(len(views))))
    return views


def _largest_count(
    state: ScheduleState, request: Lease, announced: AnnouncedJob, allowed: int
) -> int:
    """Return the most GPUs that reservations and quotas let a job start with."""
    counts = range(min(announced.job.max_gpus, allowed), request.count, -1)
    return next(
        (
            count
            for count in counts
            if state.allowance.exceeded_group(replace(request, count=count)) is None
        ),
        request.count,
    )


def _start_on_own_reservations(
    state: ScheduleState, waiting: Sequence[JobView], policy: Policy, busy: set[int]
) -> dict[str, int]:
    """Start the jobs of users who have reserved GPUs for this time, on those GPUs."""
    users = {job.key: job.uid for job in state.announced}
    starts: dict[str, int] = {}
    for uid in {users[view.id] for view in waiting if view.id in users}:
        own = state.calendar.own_gpus(uid, state.boot) - busy
        jobs = [view for view in waiting if users.get(view.id) == uid]
        if own:
            starts |= decide(jobs, policy, Pool((len(own),)), state.now).starts
    return starts


def _is_time_to_resize(state: ScheduleState, policy: Policy, last: StoredDecision) -> bool:
    """Return whether the policy resizes running jobs, and its interval has passed."""
    interval = state.config.rules.resize_seconds or policy.round_s
    jobs = [job.job for job in state.announced]
    if interval is None or not any(job.elastic and job.phase == RUNNING for job in jobs):
        return False
    if any(job.phase == STOPPING for job in jobs):
        return False
    return last.resized_boot is None or not 0 <= state.boot - last.resized_boot < interval


def _find_overdue(state: ScheduleState, waiting: Sequence[JobView]) -> str | None:
    """Return the job or request that has waited too long."""
    names = {view.id for view in waiting}
    for request in state.order:
        id_ = request.id if request.id in names else name_lease(request)
        if id_ in names and state.now - request.requested_at > _MAX_WAIT_SECONDS:
            return id_
    return None


def _limit_starts(
    state: ScheduleState, starts: Mapping[str, int], unreserved: set[int]
) -> dict[str, int]:
    """Drop or shrink starts that quotas or reservations forbid, given those before them."""
    allowance, limited = state.allowance, {}
    requests = {request.id: request for request in state.order}
    for key, gpus in starts.items():
        request = requests[key]
        own = state.calendar.own_gpus(request.uid, state.boot)
        usable = state.calendar.usable_gpus(request, tuple(unreserved | own), state.boot)
        request = replace(request, count=min(gpus, len(usable)))
        while request.count >= requests[key].count and allowance.exceeded_group(request):
            request = replace(request, count=request.count - 1)
        if request.count >= requests[key].count:
            limited[key] = request.count
            allowance = allowance.subtract(request)
    return limited


def _describe_withheld(
    state: ScheduleState,
    outcome: Decision,
    policy: Policy,
    running: Sequence[JobView],
    waiting: Sequence[JobView],
) -> tuple[str | None, Withheld | None]:
    """Return for which job or lease GPUs are withheld, and why."""
    view = next((view for view in waiting if view.id == outcome.withheld_for), None)
    if view is None:
        return None, None
    request = next(
        request for request in state.order if view.id in (request.id, name_lease(request))
    )
    name = next((job.job.name for job in state.announced if job.key == view.id), view.id)
    waited = state.now - request.requested_at
    reason = f"it is next under {policy.name}"
    if waited > _MAX_WAIT_SECONDS:
        reason = f"it has waited for {format_duration(waited)}"
    withheld = Withheld(
        outcome.withheld_gpus,
        request.user,
        name,
        view.min_gpus,
        f"{reason} and needs {view.min_gpus} GPUs",
        *_expect_start(state, view, outcome, running),
    )
    return request.id, withheld


def _expect_start(
    state: ScheduleState, view: JobView, outcome: Decision, running: Sequence[JobView]
) -> tuple[float | None, bool]:
    """Return when enough GPUs are free, and whether a job counts whose length is only assumed.

    The time is None if a lease has no end.
    """
    endless = {
        name_lease(lease) for lease in state.held if lease.until_boot is None and not lease.job
    }
    unknown = {job.key for job in state.announced if job.job.assumed_length}
    free, assumed = outcome.withheld_gpus, False
    for seconds, gpus, id_ in sorted(
        (job.remaining_seconds(job.gpus), job.gpus, job.id)
        for job in running
        if job.id not in endless
    ):
        free += gpus
        assumed = assumed or id_ in unknown
        if free >= view.min_gpus:
            return state.now + seconds, assumed
    return None, False
