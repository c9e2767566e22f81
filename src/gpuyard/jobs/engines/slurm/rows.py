"""Jobs as Slurm tells of them: one row for each, or for each task of an array."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, NoAnswer
from gpuyard.jobs.engines.slurm.commands import ask
from gpuyard.jobs.engines.slurm.script.nodes import COMMENT, COMPANION_COMMENT
from gpuyard.jobs.job import FINAL, JobState

_QUEUE = (
    "JobID", "ArrayJobID", "ArrayTaskID", "State", "exit_code", "RestartCnt", "NumNodes",
    "SubmitTime", "StartTime", "EndTime", "Reason", "NodeList", "Comment",
)  # fmt: skip
_ACCOUNTING = ("JobID", "State", "ExitCode", "NNodes", "Submit", "Start", "End", "NodeList")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_STATES: dict[str, JobState] = {
    "PENDING": "queued",
    "CONFIGURING": "queued",
    "REQUEUED": "queued",
    "REQUEUE_FED": "queued",
    "REQUEUE_HOLD": "queued",
    "RESV_DEL_HOLD": "queued",
    "SPECIAL_EXIT": "queued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "COMPLETED": "succeeded",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "OUT_OF_MEMORY": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "PREEMPTED": "lost",
}
_REASONS = {
    "Resources": "waits until enough GPUs are free",
    "Priority": "jobs of a higher priority go first",
    "Dependency": "waits for the jobs that it comes after",
    "DependencyNeverSatisfied": "a job that it comes after did not succeed",
    "BeginTime": "Slurm starts it again in about two minutes",
    "JobHeldUser": "held by its user; release it with: scontrol release",
    "JobHeldAdmin": "held by an administrator",
    "JobArrayTaskLimit": "as many tasks of its array run as may at once",
    "ReqNodeNotAvail": "nodes that it could have are down or reserved",
    "PartitionNodeLimit": "its partition does not allow that many nodes for one job",
    "PartitionTimeLimit": "its partition allows less time for one job",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "nodes that it could have are down, drained or reserved"
    ),
    "TimeLimit": "its time limit was over",
    "NonZeroExitCode": "",
    "None": "",
}


@dataclass(frozen=True)
class SlurmJob:
    """One job of Slurm's, or one task."""

    number: int
    task: str | None
    uuid: str | None
    """Ours, from its comment; None: it is not ours."""
    slurm_state: str
    exit_status: int | None
    restarts: int
    node_count: int
    nodes: str
    """As Slurm writes them: node[1-2]."""
    submitted: float | None
    started: float | None
    ended: float | None
    slurm_reason: str
    companion_of: str | None = None
    """The UUID of the job that it holds nodes for."""

    @property
    def state(self) -> JobState:
        return _STATES.get(self.slurm_state, "unknown")

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def reason(self) -> str:
        """In words."""
        if self.slurm_state in {"NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}:
            return f"Slurm says {self.slurm_state}"
        return _REASONS.get(self.slurm_reason, self.slurm_reason.replace("_", " "))


def queue_rows() -> list[SlurmJob]:
    """Those of this user that Slurm has not forgotten."""
    return _queue(f"--user={os.getuid()}")


def numbered_rows(number: int) -> list[SlurmJob]:
    """Whoever's it is; none where Slurm knows no such number."""
    try:
        return _queue(f"--jobs={number}")
    except NoAnswer:
        raise
    except GpuyardError:
        return []  # Invalid job id specified


def _queue(which: str) -> list[SlurmJob]:
    columns = ",".join(f"{name}:|" for name in _QUEUE)
    said = ask("squeue", "--noheader", "--states=all", "--array", which, f"--Format={columns}")
    found = []
    for line in said.splitlines():
        values = line.split("|", len(_QUEUE) - 1)
        if len(values) == len(_QUEUE) and (row := _row(dict(zip(_QUEUE, values, strict=True)))):
            found.append(row)
    return found


def accounting_rows(numbers: Sequence[int], uuid: str) -> list[SlurmJob]:
    """What Slurm's database says, where there is one: by number, and only where the script was this job's."""
    columns = ",".join((*_ACCOUNTING, "SubmitLine"))
    try:
        said = ask(
            "sacct", "--noheader", "--allocations", "--parsable2", "--duplicates",
            f"--jobs={','.join(map(str, numbers))}", f"--format={columns}",
        )  # fmt: skip
    except GpuyardError:
        return []
    found = []
    for line in said.splitlines():
        values = line.split("|", len(_ACCOUNTING))
        if len(values) == len(_ACCOUNTING) + 1 and uuid in values[-1]:
            found.append(_accounted(dict(zip(_ACCOUNTING, values, strict=False)), uuid))
    return [row for row in found if row.number]


def _row(said: dict[str, str]) -> SlurmJob | None:
    """None: it has no number, so it is no job but, say, a line more of somebody's comment."""
    comment = said["Comment"].removesuffix("|")
    uuid = comment.removeprefix(COMMENT)
    ours = comment.startswith(COMMENT) and _UUID.fullmatch(uuid) is not None
    task = said["ArrayTaskID"] if _NUMBER.fullmatch(said["ArrayTaskID"]) else None
    number = _count(said["JobID"] if task is None else said["ArrayJobID"])
    if not number:
        return None
    return SlurmJob(
        number=number,
        task=task,
        uuid=uuid if ours else None,
        slurm_state=said["State"],
        exit_status=_exit_status(said["exit_code"]),
        restarts=_count(said["RestartCnt"]),
        node_count=_count(said["NumNodes"]),
        nodes=said["NodeList"],
        submitted=_moment(said["SubmitTime"]),
        started=_moment(said["StartTime"]),
        ended=_moment(said["EndTime"]),
        slurm_reason=said["Reason"],
        companion_of=comment.removeprefix(COMPANION_COMMENT)
        if comment.startswith(COMPANION_COMMENT)
        else None,
    )


def _accounted(said: dict[str, str], uuid: str) -> SlurmJob:
    number, _, task = said["JobID"].partition("_")
    return SlurmJob(
        number=_count(number),
        task=task if _NUMBER.fullmatch(task) else None,
        uuid=uuid,
        slurm_state=said["State"].partition(" ")[0],  # CANCELLED by 1000
        exit_status=_exit_status(said["ExitCode"]),
        restarts=0,
        node_count=_count(said["NNodes"]),
        nodes=said["NodeList"],
        submitted=_moment(said["Submit"]),
        started=_moment(said["Start"]),
        ended=_moment(said["End"]),
        slurm_reason="None",
    )


def _exit_status(said: str) -> int | None:
    """As a shell says it: from "3:0" (status and signal), or from what wait() gives."""
    status, colon, number = said.partition(":")
    if colon and _NUMBER.fullmatch(status) and _NUMBER.fullmatch(number):
        return int(status) or (128 + int(number) if int(number) else 0)
    if not _NUMBER.fullmatch(said):
        return None
    waited = int(said)
    return 128 + (waited & 127) if waited & 127 else waited >> 8


def _count(said: str) -> int:
    return int(said) if _NUMBER.fullmatch(said) else 0


def _moment(said: str) -> float | None:
    return float(said) if _count(said) else None
