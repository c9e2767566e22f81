"""Growing and shrinking jobs that run on Slurm: the queue's policy is asked once, for this user's jobs and what is free.

Slurm keeps the order of everybody's jobs. More nodes are asked for like any job's, by a companion that holds them; the job
goes on as it is until they are there. What a job gives back is Slurm's to give, so that is done where nobody else waits.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.local.turns import LocalJob, resized
from gpuyard.jobs.engines.slurm import commands, records
from gpuyard.jobs.engines.slurm.commands import PartitionNodes
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.request import default_partition
from gpuyard.jobs.engines.slurm.rows import SlurmJob, queue_rows
from gpuyard.jobs.engines.slurm.script.nodes import COMPANION_COMMENT, WANTED
from gpuyard.jobs.engines.slurm.sizing import UNKNOWN_SECONDS, known_curve, speed_of_shape
from gpuyard.jobs.engines.slurm.starts import Start, all_reports, starts_of
from gpuyard.jobs.policies import JobView, Policy, Pool
from gpuyard.jobs.progress import progress_of

_WAITS = frozenset({"Resources", "Priority", "None"})
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Resize:
    """What is to become of one job."""

    job: str
    gpus: int
    new_gpus: int
    nodes: int
    new_nodes: int
    seconds_saved: float | None
    """Of this job's own time, restart counted; None where it makes room for others."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Rebalance:
    """The policy's answer, and why jobs that it could concern keep what they have."""

    policy: str
    resizes: tuple[Resize, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """(job, why)."""
    open_jobs: int = 0


@dataclass(frozen=True)
class _Seen:
    """A job that has not ended, with Slurm's row of it."""

    record: SlurmRecord
    row: SlurmJob
    start: Start | None
    """The one that runs."""
    elastic: bool = False
    """Its nodes can change now."""


def rebalance(policy: Policy, *, dry_run: bool) -> Rebalance:
    """Decide for all of this user's jobs, and have it done unless it is a dry run."""
    rows = queue_rows()
    seen = [one for record in records.read_all() if (one := _seen(record, rows)) is not None]
    resizes: list[Resize] = []
    kept: dict[str, str] = {}
    for partition in sorted({default_partition(one.record.job) or "" for one in seen}):
        here = [one for one in seen if (default_partition(one.record.job) or "") == partition]
        here = [replace(one, elastic=not _busy(one, rows, kept, dry_run=dry_run)) for one in here]
        nodes = commands.nodes(partition or None)
        for one, resize in _decided(here, nodes, partition, policy, kept):
            if not dry_run:
                with records.held(one.record.job.uuid):
                    _have_done(one, resize)
            resizes.append(resize)
    return Rebalance(policy.name, tuple(resizes), tuple(kept.items()), len(seen))


def _seen(record: SlurmRecord, rows: Sequence[SlurmJob]) -> _Seen | None:
    own = [row for row in rows if row.uuid == record.job.uuid and not row.final]
    if record.end or record.array is not None or not own:
        return None
    starts = starts_of(record.directory)
    runs = own[0].state == "running" and starts and starts[-1].ended is None
    return _Seen(record, own[0], starts[-1] if runs else None)


def _busy(one: _Seen, rows: Sequence[SlurmJob], kept: dict[str, str], *, dry_run: bool) -> bool:
    """Whether its nodes can't change now. A companion that is still waited for is given up: this look decides anew."""
    handle = str(one.record.handle)
    if one.start is None:
        return True
    if not one.record.elastic:
        if one.record.job.spec.checkpoint is not None:
            kept[handle] = (
                "only torchrun with a range of GPUs, a workload and nodes that Slurm chooses"
            )
        return True
    wanted = _wanted(one.record)
    if refused := wanted.get("refused"):
        kept[handle] = f"Slurm does not let it shrink: {refused}"
        return True
    if not wanted:
        return False
    more = _companions(one.record, rows)
    if not wanted.get("more") or any(row.state == "running" for row in more):
        kept[handle] = f"it is changing to {wanted.get('nodes')} nodes"
        return True
    if not dry_run:
        for row in more:
            commands.scancel(str(row.number))
        (one.record.directory / WANTED).unlink(missing_ok=True)
    return False


def _decided(
    seen: Sequence[_Seen],
    nodes: PartitionNodes,
    partition: str,
    policy: Policy,
    kept: dict[str, str],
) -> list[tuple[_Seen, Resize]]:
    now = time.time()
    views = [_view(one, nodes, now) for one in seen]
    jobs = [LocalJob(at, view) for at, view in enumerate(views) if view is not None]
    unused = [there - used for there, used in zip(nodes.gpus or (), nodes.used, strict=False)]
    total = sum(unused) + sum(job.view.gpus for job in jobs)
    found: list[tuple[_Seen, Resize]] = []
    if total <= 0:
        return found
    given = policy.allocate([job.view for job in jobs], Pool((total,)), now)
    left_over = total - sum(given.values())
    for at, dealt in resized(jobs, policy, free=total, now_s=now).items():
        one, view = seen[at], views[at]
        if view is None or one.start is None:
            continue
        # a job can't be stopped for a while here: it keeps what the others leave
        gpus = dealt or min(view.gpus, left_over)
        left_over -= 0 if dealt else gpus
        each, before, handle = (
            one.record.gpus_per_node,
            len(one.start.nodes),
            str(one.record.handle),
        )
        count = min(gpus // each, before + sum(left >= each for left in unused))
        if count == before:
            if gpus > view.gpus:
                kept[handle] = "no whole node is free for it"
        elif count < max(1, -(-view.least_gpus // each)):
            kept[handle] = "the policy would stop it, and it would wait behind everybody"
        elif count < before and _others_wait(partition):
            kept[handle] = "it would make room, and other users' jobs wait for that"
        else:
            saved = view.seconds_left(before * each) - view.seconds_left(count * each)
            if count > before and saved <= 0:
                kept[handle] = "a restart costs more than the nodes that are free would save"
                continue
            for _ in range(count - before):
                unused.remove(next(left for left in unused if left >= each))
            found.append(
                (
                    one,
                    Resize(
                        handle, before * each, count * each, before, count,
                        saved if count > before else None,
                    ),
                )
            )  # fmt: skip
    return found


def _view(one: _Seen, nodes: PartitionNodes, now: float) -> JobView | None:
    """None: it waits for something else than GPUs."""
    record, spec = one.record, one.record.job.spec
    each = record.gpus_per_node
    gpus = len(one.start.nodes) * each if one.start else one.row.node_count * each
    runs = one.row.state == "running"
    if not runs and one.row.slurm_reason not in _WAITS:
        return None
    asked = gpus if runs else record.most_nodes * each
    view = JobView(
        id=str(record.handle),
        curve=Curve.rigid(asked),
        remaining_work=UNKNOWN_SECONDS,
        asked_gpus=asked,
        least_gpus=asked,
        most_gpus=asked,
        submitted_s=record.job.submitted,
        deadline_s=record.job.deadline,
        priority=spec.priority,
        allocation=((0, gpus),) if runs else None,
        started_s=one.row.started if runs else None,
    )
    if spec.workload is None:
        return view
    with contextlib.suppress(GpuyardError):  # its workload's file may be gone
        curve, samples, _ = known_curve(record.job, nodes, record.cluster)
        made = progress_of(
            all_reports(record),
            curve=curve,
            gpus=gpus,
            now=now,
            total_samples=samples,
            resumes=True,
        )
        if made.curve is None:
            return view
        most = min(spec.gpus.max // each, nodes.with_gpus(each)) if one.elastic else asked // each
        packed = np.zeros(max(most * each, asked) + 1)
        for count in range(1, most + 1) if one.elastic else [asked // each]:
            packed[count * each] = speed_of_shape(made.curve, count, each)
        if packed[asked] <= 0:
            return view
        left = made.total_samples and max(0.0, made.total_samples - made.done_samples)
        view = replace(
            view,
            curve=Curve(packed),
            remaining_work=UNKNOWN_SECONDS * packed[asked] if left is None else left,
        )
        if one.elastic and spec.checkpoint is not None:
            view = replace(
                view,
                least_gpus=-(-spec.gpus.min // each) * each,
                most_gpus=max(most * each, asked),
                elastic=True,
                restart_s=spec.checkpoint.restart,
            )
    return view


def _others_wait(partition: str) -> bool:
    chosen = (f"--partition={partition}",) if partition else ()
    said = commands.ask(
        "squeue", "--noheader", "--states=PENDING", "--Format=UserID:|,Reason:|", *chosen
    )
    rows = [line.split("|") for line in said.splitlines()]
    return any(row[0] != str(os.getuid()) and row[1] in _WAITS for row in rows if len(row) > 1)


def _have_done(one: _Seen, resize: Resize) -> None:
    """The job's own script does it, at its next look."""
    record, start = one.record, one.start
    more = None
    if resize.new_nodes > resize.nodes and start is not None:
        options = record.job.spec.slurm
        excluded = [*start.nodes, *([options.exclude] if options and options.exclude else [])]
        number = one.row.number
        more = commands.sbatch(
            str(record.script),
            record.environment(),
            f"--nodes={resize.new_nodes - resize.nodes}",
            f"--exclude={','.join(excluded)}",
            f"--comment={COMPANION_COMMENT}{record.job.uuid}",
            f"--dependency=after:{number}",
            "--no-requeue",
            arguments=("more", str(number)),
        )
    wanted = {"number": one.row.number, "nodes": resize.new_nodes, "more": more and str(more)}
    try:
        files.write_text(record.directory / WANTED, json.dumps(wanted) + "\n", mode=0o600)
    except GpuyardError as error:
        if more:  # it would hold nodes that nobody takes
            commands.scancel(str(more))
        raise GpuyardError(
            f"{resize.job} keeps its {resize.gpus} GPUs, as it can't be told to change: {error}"
        ) from error


def end_companion_asked_for(record: SlurmRecord) -> None:
    """Of a job that is cancelled: its script may be killed before it can do so."""
    for row in _companions(record, queue_rows()) if _wanted(record) else ():
        commands.scancel(str(row.number))


def _companions(record: SlurmRecord, rows: Sequence[SlurmJob]) -> list[SlurmJob]:
    """Those that were asked for last. Its number alone does not tell: Slurm may have given it to another job since."""
    more = _wanted(record).get("more")
    return [r for r in rows if r.companion_of == record.job.uuid and str(r.number) == more]


def _wanted(record: SlurmRecord) -> Mapping[str, Any]:
    try:
        found = json.loads(files.read_text(record.directory / WANTED, most_bytes=_MOST_BYTES))
    except (GpuyardError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
