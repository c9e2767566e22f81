"""Show the server's policy the jobs and leases of all users, and record what it decides."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuyard.policies import JobView, Policy, Pool, get_policy
from gpuyard.policies.decision import Decision, choose_resizes, decide
from gpuyard.share.config import describe_used_quota
from gpuyard.share.job_views import name_lease, reduce_view, view_job, view_leases
from gpuyard.share.models import WHOLE
from gpuyard.share.queue import waits_for_own_lease
from gpuyard.share.schedule import (
    RUNNING,
    STOPPING,
    StoredDecision,
    Withheld,
)
from gpuyard.share.schedule_state import ScheduleState
from gpuyard.units import format_duration

_RESIZE_SECONDS = 15.0  # within which a runner learns of a resize
_MAX_WAIT_SECONDS = 86400.0  # after which a job comes first under every policy
_PRIORITY_STEP = 10_000  # between priorities of groups: a user's own priorities never count as much
_MAX_POSITIONS = 20  # places in the queue that jobs learn about; others change too often


def make_decision(state: ScheduleState, last: StoredDecision) -> StoredDecision:
    """Apply the policy once."""
    rules = state.config.rules
    policy = get_policy(rules.job_policy, explore_gpu_s=rules.explore_gpu_seconds)
    reasons: dict[str, str] = {}
    waiting = _view_waiting(state, reasons)
    busy = state.busy_gpus
    idle = {
        gpu
        for gpu in state.config.indices
        if gpu not in busy and state.calendar.free_until(gpu, -1, state.boot) > state.boot
    }
    movable = idle | state.elastic_gpus
    running = _view_running(state, movable)
    starts, waiting, reserved = _start_on_own_reservations(state, waiting, policy, busy)
    overdue = _find_overdue(state, waiting)
    kept_for, kept = _keep_for_first(state, waiting, idle, overdue)
    counted = [view for view in waiting if state.can_count(view, idle - kept)]
    for id_ in {view.id for view in waiting} - {view.id for view in counted}:
        reasons[id_] = "waits for other GPUs than the idle ones, which are reserved too soon for it"
    pool = Pool((len(idle - kept) + len(busy),))
    outcome = decide([*running, *counted], policy, pool, state.now, overdue=overdue)
    starts |= {id_: gpus + reserved.get(id_, 0) for id_, gpus in outcome.starts.items()}
    starts = _place_starts(state, starts, idle - kept, busy)
    ahead = [state.requests[id_].id for id_ in outcome.starts]
    if kept_for is not None and outcome.withheld_for is None:
        outcome = replace(outcome, withheld_for=kept_for, withheld_gpus=len(kept))
        ahead = []
    resizes = {
        key: (before, new, at)
        for key, (before, new, at) in last.resizes.items()
        if state.boot - at < _RESIZE_SECONDS
    }
    resize = _is_time_to_resize(state, policy, last)
    if resize:
        gaining = [view for view in counted if state.can_count(view, movable - kept)]
        current = {view.id: view.gpus for view in running}
        for id_, new in choose_resizes([*running, *gaining], policy, pool, state.now).items():
            resizes[id_] = current[id_], new, state.boot
    for position, request in enumerate(state.order, 1):
        if request.id not in starts and request.id not in reasons:
            place = f"number {position} " if position <= _MAX_POSITIONS else ""
            reasons[request.id] = f"{place}in the queue for GPUs"
    withheld_for, withheld = _describe_withheld(state, outcome, policy, running, counted)
    jobs = {job.key for job in state.announced}
    return StoredDecision(
        starts=starts,
        resizes=resizes,
        resized_boot=state.boot if resize else last.resized_boot,
        reasons={key: reason for key, reason in reasons.items() if key in jobs},
        withheld_for=withheld_for,
        withheld=withheld,
        ahead=ahead,
    )


def _view_running(state: ScheduleState, movable: set[int]) -> list[JobView]:
    """Return the jobs and leases that hold GPUs, or have an instruction to start and will request them.

    A job cannot grow beyond its quotas or the GPUs that it may use among those that are idle or can be taken from jobs.
    """
    leases = {(lease.uid, lease.job): lease for lease in reversed(state.active) if lease.job}
    starting = {(request.uid, request.job) for request in state.starting}
    views, known = [], set()
    for job in state.announced:
        lease = leases.get((job.uid, job.job.id))
        if lease is not None and lease.held and lease.parts == WHOLE:
            known.add(lease.id)
            gpus = len(lease.gpus)
            allowed = len(state.usable_gpus(lease, movable))
            most = state.largest_count(lease, min(job.job.max_gpus, allowed), gpus, held=gpus)
            view = view_job(job, gpus, 0, most)
            views.append(replace(view, elastic=view.elastic and job.job.phase == RUNNING))
        elif (job.uid, job.job.id) in starting:
            views.append(replace(view_job(job, job.granted, 0, job.granted), elastic=False))
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
        allowed = state.usable_gpus(request, state.config.indices)
        if group is not None:
            reasons[request.id] = describe_used_quota(group)
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
            most = min(announced.job.max_gpus, len(allowed))
            most = state.largest_count(request, most, request.count)
            view = view_job(announced, None, priority, most)
        views.append(replace(view, submitted_s=float(len(views))))
    return views


def _start_on_own_reservations(
    state: ScheduleState, waiting: Sequence[JobView], policy: Policy, busy: set[int]
) -> tuple[dict[str, int], list[JobView], dict[str, int]]:
    """Start the jobs of users who have reserved GPUs for this time, on those GPUs.

    Return the starts, the views that remain, and the reserved GPUs that a job which needs more of them uses as well.
    """
    users = {job.key: job.uid for job in state.announced}
    starts: dict[str, int] = {}
    reserved: dict[str, int] = {}
    for uid in {users[view.id] for view in waiting if view.id in users}:
        own = state.own_gpus(uid) - busy
        jobs = [view for view in waiting if users.get(view.id) == uid]
        jobs = [view for view in jobs if state.can_count(view, own)]
        if not own or not jobs:
            continue
        outcome = decide(jobs, policy, Pool((len(own),)), state.now)
        starts |= outcome.starts
        left = len(own) - sum(outcome.starts.values())
        first = next((view for view in jobs if view.id not in starts), None)
        if first is not None and 0 < left < first.min_gpus:
            reserved[first.id] = left
    remaining = [
        reduce_view(view, reserved.get(view.id, 0)) for view in waiting if view.id not in starts
    ]
    return starts, remaining, reserved


def _keep_for_first(
    state: ScheduleState, waiting: Sequence[JobView], idle: set[int], overdue: str | None
) -> tuple[str | None, set[int]]:
    """Return a request that comes first and that the policy cannot decide about, with the idle GPUs that it can use."""
    first = next((view for view in waiting if view.id == overdue), next(iter(waiting), None))
    if first is None or state.can_count(first, idle):
        return None, set()
    kept = state.usable_gpus(state.requests[first.id], idle)
    return (first.id if kept else None), kept


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
    ids = {view.id for view in waiting}
    for id_, request in state.requests.items():
        if id_ in ids and state.now - request.requested_at > _MAX_WAIT_SECONDS:
            return id_
    return None


def _place_starts(
    state: ScheduleState, starts: Mapping[str, int], idle: set[int], busy: set[int]
) -> dict[str, int]:
    """Choose GPUs for the starts in their order. Return those of jobs, without those that find too few GPUs.

    Quotas or bookings can leave fewer GPUs than the policy counted, or the same ones for several.
    """
    jobs = {job.key for job in state.announced}
    allowance, taken, placed = state.allowance, set(busy), {}
    for id_, gpus in starts.items():
        request = state.requests[id_]
        free = dict.fromkeys((idle | state.own_gpus(request.uid)) - taken, WHOLE)
        most = min(gpus, len(state.usable_gpus(request, free)))
        for count in range(most, request.count - 1, -1):
            start = replace(request, count=count)
            if allowance.exceeded_group(start) is not None:
                continue
            chosen = state.calendar.choose_gpus(start, free, state.config.rates, state.boot)
            if chosen is None:
                continue
            taken.update(chosen)
            allowance = allowance.subtract(start)
            if id_ in jobs:
                placed[id_] = count
            break
    return placed


def _describe_withheld(
    state: ScheduleState,
    outcome: Decision,
    policy: Policy,
    running: Sequence[JobView],
    waiting: Sequence[JobView],
) -> tuple[str | None, Withheld | None]:
    """Return for which job or lease GPUs are withheld, and why."""
    if outcome.withheld_for is None:
        return None, None
    request = state.requests[outcome.withheld_for]
    name = next((job.job.name for job in state.announced if job.key == request.id), None)
    waited = state.now - request.requested_at
    reason = f"it is next under {policy.name}"
    if waited > _MAX_WAIT_SECONDS:
        reason = f"it has waited for {format_duration(waited)}"
    expected, assumed = None, False
    for view in waiting:
        if view.id == outcome.withheld_for:
            expected, assumed = _expect_start(state, view, outcome, running)
    withheld = Withheld(
        outcome.withheld_gpus,
        request.user,
        name or name_lease(request),
        request.count,
        f"{reason} and needs {request.count} GPUs",
        expected,
        assumed,
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
