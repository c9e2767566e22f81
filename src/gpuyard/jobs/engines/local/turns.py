"""Which jobs start now, and with how many GPUs: a policy's answer, among the leases of everybody on this machine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuyard.jobs.policies import JobView, Policy, Pool
from gpuyard.share.turns.calendar import DRAIN
from gpuyard.share.turns.queue import ShareState


@dataclass(frozen=True)
class LocalJob:
    """A job of this user's that has not ended, as the queue sees it."""

    number: int
    view: JobView
    waits_for_lease: bool = False
    """It was started, and stands in the queue of leases."""


def free_for_jobs(state: ShareState, indices: Sequence[int], ours: Collection[str]) -> int:
    """GPUs that others don't hold, and that are not drained."""
    taken = {gpu for lease in state.held if lease.id not in ours for gpu in lease.gpus}
    taken |= {gpu for one in state.reservations if one.kind == DRAIN for gpu in one.gpus}
    return len(set(indices) - taken)


def others_in_the_way(state: ShareState, ours: Collection[str]) -> bool:
    """Whether somebody else has or wants GPUs."""
    return any(lease.id not in ours for lease in (*state.held, *state.waiting))


def starts(
    jobs: Sequence[LocalJob],
    policy: Policy,
    *,
    free: int,
    total: int,
    contended: bool,
    now_s: float,
) -> dict[int, int]:
    """Job → GPUs, of those that start now.

    `free` are all GPUs that others don't hold. On a server that others use as well, one job takes a place in the queue of
    leases even if nothing is free, else it would never be its turn.
    """
    chosen = _chosen(jobs, policy, free, now_s)
    if chosen or not contended or any(job.waits_for_lease for job in jobs):
        return chosen
    later = _chosen(jobs, policy, total, now_s)
    first = next(iter(later), None)
    return {} if first is None else {first: later[first]}


def resized(jobs: Sequence[LocalJob], policy: Policy, *, free: int, now_s: float) -> dict[int, int]:
    """Job → GPUs with which it should go on (0: it waits), of those that run and can be stopped.

    One that would get more is only stopped where it is done sooner for it, the restart counted. One that would get fewer
    makes room for others; that this gains more than it costs is the policy's to say.
    """
    given = _allocated([job.view for job in jobs], policy, free, now_s)
    changed = {}
    for job in jobs:
        view, gpus = job.view, given.get(job.view.id, 0)
        if not view.running or not view.elastic or job.waits_for_lease or gpus == view.gpus:
            continue
        if gpus > view.gpus and view.seconds_left(gpus) >= view.seconds_left(view.gpus):
            continue
        changed[job.number] = gpus
    return changed


def _chosen(jobs: Sequence[LocalJob], policy: Policy, gpus: int, now_s: float) -> dict[int, int]:
    """In the order of the policy's answer; what running jobs have is theirs until they are stopped."""
    views = [job.view for job in jobs]
    given = _allocated(views, policy, gpus, now_s)
    left = gpus - sum(given.values())
    if left > 0:  # a job that can do with fewer than it asked for need not wait for all of them
        fewer = [_with_fewer(view, left) for view in views]
        if fewer != views:
            given = _allocated(fewer, policy, gpus, now_s)
    numbers = {job.view.id: job.number for job in jobs if not job.view.running}
    left = gpus - sum(view.gpus for view in views)
    started = {}
    for id_, count in given.items():
        if id_ in numbers and 0 < count <= left:
            started[numbers[id_]] = count
            left -= count
    return started


def _allocated(
    views: Sequence[JobView], policy: Policy, gpus: int, now_s: float
) -> Mapping[str, int]:
    return policy.allocate(views, Pool((gpus,)), now_s) if gpus > 0 else {}


def _with_fewer(view: JobView, left: int) -> JobView:
    if view.running or not view.least_gpus <= left < view.asked_gpus:
        return view
    return replace(view, asked_gpus=left)
