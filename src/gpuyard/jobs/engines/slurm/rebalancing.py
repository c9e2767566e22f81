"""Growing and shrinking of running jobs: the queue's policy divides the free GPUs among this user's jobs, once.

Slurm keeps the order of all users' jobs. To grow, a job requests more nodes with a companion job that holds them, and
continues until they are there. Slurm decides who gets the nodes that a job gives back, so a job shrinks only if no other
user waits.
"""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.request import find_partition
from gpuyard.jobs.engines.slurm.script.nodes import RESIZE_FILE
from gpuyard.jobs.engines.slurm.sizing import UNKNOWN_SECONDS, load_curve, speed_on_nodes
from gpuyard.jobs.engines.slurm.starts import Start, read_reports, read_starts
from gpuyard.jobs.progress import estimate_progress
from gpuyard.policies import JobView, Policy, Pool
from gpuyard.policies.curve import Curve
from gpuyard.policies.decision import choose_resizes
from gpuyard.slurm import client
from gpuyard.slurm.jobs import WAITING_FOR_GPUS, SlurmJob, list_jobs, other_users_wait
from gpuyard.slurm.nodes import PartitionNodes, list_partition

_MAX_BYTES = 100_000


@dataclass(frozen=True)
class Resize:
    """The new size of one job."""

    job: str
    gpus: int
    new_gpus: int
    nodes: int
    new_nodes: int
    seconds_saved: float | None
    """Time that the job saves, including its restart; None if it shrinks for other jobs."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Rebalance:
    """The policy's decisions, and the reasons why other jobs keep their size."""

    policy: str
    resizes: tuple[Resize, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """Jobs and reasons."""
    open_jobs: int = 0


@dataclass(frozen=True)
class _OpenJob:
    """An unfinished job and its entry in Slurm's queue."""

    record: SlurmRecord
    queued: SlurmJob
    start: Start | None
    """The start that runs now."""
    resizable: bool = False

    @property
    def handle(self) -> str:
        return str(self.record.handle)

    @property
    def partition(self) -> str:
        return find_partition(self.record.job) or ""


def rebalance(policy: Policy, *, dry_run: bool) -> Rebalance:
    """Decide about all of this user's jobs, and request the changes unless it is a dry run."""
    queue = list_jobs()
    open_jobs = [job for record in records.read_all(0) if (job := _find_open(record, queue))]
    resizes: list[Resize] = []
    kept: dict[str, str] = {}
    for partition in sorted({job.partition for job in open_jobs}):
        jobs = [
            replace(job, resizable=_check_resizable(job, queue, kept, dry_run=dry_run))
            for job in open_jobs
            if job.partition == partition
        ]
        nodes = list_partition(partition or None)
        for job, resize in _decide_resizes(jobs, nodes, partition, policy, kept):
            if not dry_run:
                with records.lock(job.record.uuid):
                    _request_resize(job, resize)
            resizes.append(resize)
    return Rebalance(policy.name, tuple(resizes), tuple(kept.items()), len(open_jobs))


def _find_open(record: SlurmRecord, queue: Sequence[SlurmJob]) -> _OpenJob | None:
    own = [job for job in queue if job.comment == record.comment and not job.is_final]
    if record.result or record.array is not None or not own:
        return None
    starts = read_starts(record.directory)
    runs = own[0].state == "running" and starts and starts[-1].ended is None
    return _OpenJob(record, own[0], starts[-1] if runs else None)


def _check_resizable(
    job: _OpenJob, queue: Sequence[SlurmJob], kept: dict[str, str], *, dry_run: bool
) -> bool:
    """Return whether a job's nodes can change now; withdraw a companion that still waits for its nodes."""
    if job.start is None:
        return False
    if not job.record.elastic:
        if job.record.job.spec.checkpoint is not None:
            kept[job.handle] = (
                "only torchrun with a range of GPUs, a workload, and nodes that Slurm chooses can be resized"
            )
        return False
    request = _read_resize_request(job.record)
    if refusal := request.get("refused"):
        kept[job.handle] = f"Slurm does not let it shrink: {refusal}"
        return False
    if not request:
        return True
    companions = _find_companions(job.record, queue)
    if not request.get("companion") or any(c.state == "running" for c in companions):
        kept[job.handle] = f"it is changing to {request.get('nodes')} nodes"
        return False
    if not dry_run:
        for companion in companions:
            client.cancel(str(companion.number))
        (job.record.directory / RESIZE_FILE).unlink(missing_ok=True)
    return True


def _decide_resizes(
    open_jobs: Sequence[_OpenJob],
    nodes: PartitionNodes,
    partition: str,
    policy: Policy,
    kept: dict[str, str],
) -> list[tuple[_OpenJob, Resize]]:
    now = time.time()
    views = [_build_view(job, nodes, now) for job in open_jobs]
    jobs = [view for view in views if view is not None]
    free = [gpus - used for gpus, used in zip(nodes.gpus or (), nodes.used, strict=False)]
    total = sum(free) + sum(view.gpus for view in jobs)
    resizes: list[tuple[_OpenJob, Resize]] = []
    if total <= 0:
        return resizes
    allocations = policy.allocate(jobs, Pool((total,)), now)
    unallocated = total - sum(allocations.values())
    resized = choose_resizes(jobs, policy, Pool((total,)), now)
    for job, view in zip(open_jobs, views, strict=True):
        if view is None or view.id not in resized or job.start is None:
            continue
        allocated = resized[view.id]
        # A job cannot pause on Slurm, so it keeps the GPUs that the others leave.
        gpus = allocated or min(view.gpus, unallocated)
        unallocated -= 0 if allocated else gpus
        per_node, before = job.record.gpus_per_node, len(job.start.nodes)
        count = min(gpus // per_node, before + sum(unused >= per_node for unused in free))
        sizes = (before * per_node, count * per_node, before, count)
        saved: float | None = None
        if count == before:
            if gpus > view.gpus:
                kept[job.handle] = "no whole node is free for it"
        elif count < max(1, -(-view.min_gpus // per_node)):
            kept[job.handle] = (
                "the policy would stop it, and it would then wait behind all other jobs"
            )
        elif count < before and other_users_wait(partition):
            kept[job.handle] = "other users' jobs would get the nodes that it gives back"
        elif (
            count > before
            and (saved := view.remaining_seconds(sizes[0]) - view.remaining_seconds(sizes[1])) <= 0
        ):
            kept[job.handle] = "a restart costs more time than the free nodes would save"
        else:
            for _ in range(count - before):
                free.remove(next(unused for unused in free if unused >= per_node))
            resizes.append((job, Resize(job.handle, *sizes, saved)))
    return resizes


def _build_view(job: _OpenJob, nodes: PartitionNodes, now: float) -> JobView | None:
    """Describe a job to the policy; None if it waits for something other than GPUs."""
    record, spec = job.record, job.record.job.spec
    per_node = record.gpus_per_node
    gpus = (len(job.start.nodes) if job.start else job.queued.node_count) * per_node
    runs = job.queued.state == "running"
    if not runs and job.queued.slurm_reason not in WAITING_FOR_GPUS:
        return None
    requested = gpus if runs else record.max_nodes * per_node
    view = JobView(
        id=job.handle,
        curve=Curve.rigid(requested),
        remaining_work=UNKNOWN_SECONDS,
        requested_gpus=requested,
        min_gpus=requested,
        max_gpus=requested,
        submitted_s=record.job.submitted,
        deadline_s=record.job.deadline,
        priority=spec.priority,
        allocation=((0, gpus),) if runs else None,
        started_s=job.queued.started if runs else None,
    )
    if spec.workload is None:
        return view
    with contextlib.suppress(GpuyardError):  # The workload's file may be gone.
        curve, samples, _ = load_curve(record.job, nodes, record.cluster)
        progress = estimate_progress(
            read_reports(record), curve=curve, gpus=gpus, now=now, total_samples=samples, resumes=True
        )  # fmt: skip
        if progress.curve is None:
            return view
        max_nodes = requested // per_node
        counts = [max_nodes]
        if job.resizable:
            max_nodes = min(spec.gpus.max // per_node, nodes.count_nodes(per_node))
            counts = list(range(1, max_nodes + 1))
        max_gpus = max(max_nodes * per_node, requested)
        speeds = np.zeros(max_gpus + 1)
        for count in counts:
            speeds[count * per_node] = speed_on_nodes(progress.curve, count, per_node)
        if speeds[requested] <= 0:
            return view
        remaining = UNKNOWN_SECONDS * speeds[requested]
        if progress.total_samples is not None:
            remaining = max(0.0, progress.total_samples - progress.done_samples)
        view = replace(view, curve=Curve(speeds), remaining_work=remaining)
        if job.resizable and spec.checkpoint is not None:
            view = replace(
                view,
                min_gpus=-(-spec.gpus.min // per_node) * per_node,
                max_gpus=max_gpus,
                elastic=True,
                restart_s=spec.checkpoint.restart,
            )
    return view


def _request_resize(job: _OpenJob, resize: Resize) -> None:
    """Submit a companion for more nodes, and write the request that the job's script reads."""
    record, number, companion = job.record, job.queued.number, None
    if resize.new_nodes > resize.nodes and job.start is not None:
        options = record.job.spec.slurm
        excluded = [*job.start.nodes, *([options.exclude] if options and options.exclude else [])]
        companion = client.submit(
            str(record.script),
            record.read_environment(),
            f"--nodes={resize.new_nodes - resize.nodes}",
            f"--exclude={','.join(excluded)}",
            f"--comment={record.companion_comment}",
            f"--dependency=after:{number}",
            "--no-requeue",
            arguments=("companion", str(number)),
        )
    request = {
        "number": number,
        "nodes": resize.new_nodes,
        "companion": companion and str(companion),
    }
    try:
        files.write_text(record.directory / RESIZE_FILE, json.dumps(request) + "\n", mode=0o600)
    except GpuyardError as error:
        if companion:  # It would hold nodes that no job uses.
            client.cancel(str(companion))
        raise GpuyardError(
            f"{resize.job} keeps its {resize.gpus} GPUs, as the request to change cannot be written: {error}"
        ) from error


def cancel_companions(record: SlurmRecord) -> None:
    """Cancel the companions of a job that is canceled: its script may be killed before it can do so."""
    for companion in _find_companions(record, list_jobs()) if _read_resize_request(record) else ():
        client.cancel(str(companion.number))


def _find_companions(record: SlurmRecord, queue: Sequence[SlurmJob]) -> list[SlurmJob]:
    """Find the companion in the last request by its number and comment: Slurm can reuse a number."""
    number = _read_resize_request(record).get("companion")
    return [j for j in queue if j.comment == record.companion_comment and str(j.number) == number]


def _read_resize_request(record: SlurmRecord) -> Mapping[str, Any]:
    try:
        request = json.loads(files.read_text(record.directory / RESIZE_FILE, max_bytes=_MAX_BYTES))
    except (GpuyardError, ValueError):
        return {}
    return request if isinstance(request, dict) else {}
