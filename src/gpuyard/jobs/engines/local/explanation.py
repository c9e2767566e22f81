"""Why a job on this machine waits and when it will start, given the leases of all users."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.reports import StepReports, read_progress
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.engines.local.views import (
    build_view,
    knows_length,
)
from gpuyard.jobs.explain import Explanation, explain
from gpuyard.policies import JobView, Policy, Pool
from gpuyard.share.client import open_client
from gpuyard.share.clock import Clock
from gpuyard.share.job_views import name_lease, view_job, view_leases
from gpuyard.share.models import DRAIN, ShareState
from gpuyard.share.timeparse import format_time

_MAX_NAMES = 3  # jobs of unknown length that are named; more are counted


def explain_job(
    job: StoredJob, open_jobs: Sequence[StoredJob], paths: JobPaths, policy: Policy, now: float
) -> Explanation:
    """Explain one of the open jobs, given all users' jobs; leases count as jobs that cannot be stopped."""
    client = open_client()
    state, config = client.state(), client.config
    client.close()
    reports = StepReports(paths, tail_only=True)
    views, own_leases, unknown, bounded = [], set(), [], set()
    for other in open_jobs:
        progress = read_progress(other, reports, now)
        view = build_view(other, reports, progress, len(config.gpus), now)
        start = other.start if other.in_progress else None
        if start is not None and start.lease:
            own_leases.add(start.lease)
        if start is None or start.started is None:  # in the lease queue it has no GPUs yet
            view = replace(view, allocation=None)
        views.append(view)
        if not knows_length(progress):
            unknown.append(str(other.handle))
            if other.job.spec.time_limit is not None and other is not job:
                bounded.add(str(other.handle))  # It frees its GPUs by then in any case.
    own_jobs = {other.uuid for other in open_jobs}
    views += _view_others(state, own_jobs, len(config.gpus))
    announced = {(other.uid, other.job.id) for other in state.jobs}
    known = own_leases | {
        lease.id for lease in (*state.held, *state.waiting) if (lease.uid, lease.job) in announced
    }
    views += view_leases((*state.held, *state.waiting), Clock().boot(), now, known)
    pool = Pool((max(1, len(_usable_gpus(state, config.indices))),))
    unknown += [
        name_lease(lease)
        for lease in (*state.held, *state.waiting)
        if lease.id not in known and lease.seconds is None and lease.until_boot is None
    ]
    explanation = explain(
        str(job.handle), views, pool, policy, now_s=now, format_time=format_time,
        assumed=set(unknown) - bounded,
    )  # fmt: skip
    caveat = (_describe_unknown_lengths(unknown),) if unknown else ()
    reason = (f"{job.reason[0].upper()}{job.reason[1:]}.",) if job.reason else ()
    return replace(
        explanation,
        reasons=(*reason, *explanation.reasons),
        prospects=(*explanation.prospects, *caveat),
    )


def _view_others(state: ShareState, own_jobs: Collection[str], total: int) -> Iterator[JobView]:
    """Yield the announced jobs of other users, and of this user's other runners."""
    leases = {(lease.uid, lease.job): lease for lease in state.held if lease.job}
    for announced in state.jobs:
        if announced.job.id in own_jobs:
            continue
        lease = leases.get((announced.uid, announced.job.id))
        view = view_job(announced, len(lease.gpus) if lease else None, 0, total)
        # every user has a local://1
        yield replace(view, id=f"{announced.user}'s {announced.job.name}", user="", group=view.user)


def _usable_gpus(state: ShareState, indices: Sequence[int]) -> set[int]:
    """Return the GPUs that are not drained."""
    drained = (reservation for reservation in state.reservations if reservation.kind == DRAIN)
    return set(indices).difference(*(reservation.gpus for reservation in drained))


def _describe_unknown_lengths(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (
        f"It is unknown how long {', '.join(names[:_MAX_NAMES])}{more} will take; gpuyard assumes the time limit, or one "
        "hour without one. For a better estimate, give jobs a workload and its samples."
    )
