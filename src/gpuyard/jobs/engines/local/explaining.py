"""Why a job of this machine waits and when it will start, among the leases of everybody."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import look
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.engines.local.views import (
    UNKNOWN_SECONDS,
    Reports,
    length_is_known,
    view_of,
)
from gpuyard.jobs.explain import Explanation, explain
from gpuyard.jobs.policies import JobView, Policy, Pool
from gpuyard.share.service.desk import open_desk
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import Lease
from gpuyard.share.turns.calendar import DRAIN
from gpuyard.share.turns.queue import ShareState
from gpuyard.share.turns.when import shown

_NAMED = 3  # whose length is not known; more are counted


def explain_job(
    row: StoredJob, rows: Sequence[StoredJob], paths: JobPaths, policy: Policy, now: float
) -> Explanation:
    """`rows` are all jobs that have not ended; the leases of others are jobs that nobody can stop."""
    desk = open_desk()
    state, config = desk.state(), desk.config
    desk.close()
    reports = Reports(paths)
    views, ours = [], set()
    for one in rows:
        view = view_of(one, reports, len(config.gpus), now)
        progress = look(paths.start(one.number, one.starts)).progress if one.in_progress else None
        if progress is not None:
            ours.add(progress.lease or progress.place)
        if (
            progress is None or not progress.lease
        ):  # it stands in the queue of leases, and has nothing yet
            view = replace(view, allocation=None)
        views.append(view)
    views += list(_leases(state, ours, now))
    drained = {gpu for one in state.reservations if one.kind == DRAIN for gpu in one.gpus}
    pool = Pool((max(1, len(set(config.indices) - drained)),))
    found = explain(str(row.handle), views, pool, policy, now_s=now, say=shown)
    unknown = [str(one.handle) for one in rows if not length_is_known(one, reports, now)]
    unknown += [
        _named(lease)
        for lease in (*state.held, *state.waiting)
        if lease.id not in ours and lease.seconds is None and lease.until_boot is None
    ]
    more = (_unknown_sentence(unknown),) if unknown else ()
    said = (f"{row.reason[0].upper()}{row.reason[1:]}.",) if row.reason else ()
    return replace(found, reasons=(*said, *found.reasons), prospects=(*found.prospects, *more))


def _leases(state: ShareState, ours: Collection[str], now: float) -> Iterator[JobView]:
    """Those of others, and those of one's own that are no jobs."""
    clock, counted = Clock(), set[int]()
    for lease in (*state.held, *state.waiting):
        if lease.id in ours:
            continue
        gpus = set(lease.gpus) - counted  # parts of one GPU count once
        counted |= gpus
        if lease.held and not gpus:
            continue
        count = len(gpus) if lease.held else lease.count
        left = lease.seconds
        if lease.held and lease.until_boot is not None:
            left = max(0.0, lease.until_boot - clock.boot())
        yield JobView(
            id=_named(lease),
            curve=Curve.rigid(count),
            remaining_work=UNKNOWN_SECONDS if left is None else left,
            asked_gpus=count,
            least_gpus=count,
            most_gpus=count,
            submitted_s=min(lease.asked, now),
            user=lease.user,
            priority=lease.priority,
            allocation=((0, count),) if lease.held else None,
            started_s=lease.start,
        )


def _named(lease: Lease) -> str:
    return f"lease {lease.id}"


def _unknown_sentence(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"Nobody knows how long {', '.join(names[:_NAMED])}{more} will take: the time limit is assumed, else an "
        "hour. A workload with its samples would say."
    )
