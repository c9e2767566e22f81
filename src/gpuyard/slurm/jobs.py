"""Slurm's jobs: one `SlurmJob` per job or array task, and the GPUs of an allocation.

`squeue --Format` filters on the controller and prints the same columns in every version, so it lists a user's jobs.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.slurm.client import query, run
from gpuyard.slurm.nodes import count_gpus, expand_hostnames

_QUEUE = (
    "JobID", "ArrayJobID", "ArrayTaskID", "State", "exit_code", "RestartCnt", "NumNodes",
    "SubmitTime", "StartTime", "EndTime", "Reason", "NodeList", "Comment",
)  # fmt: skip
_ACCOUNTING = (
    "JobID", "State", "ExitCode", "NNodes", "Submit", "Start", "End", "NodeList", "SubmitLine",
)  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,10}")
_JOB_STATE = re.compile(r"^JobId=(?P<job>\d+) .*\bJobState=(?P<state>\w+)", re.MULTILINE)
_ALLOCATED = re.compile(r"\bNodes=(?P<nodes>\S+) CPU_IDs=\S* Mem=\S* GRES=(?P<gres>\S*)")
State = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost", "unknown"]
_BY_STATE: dict[State, tuple[str, ...]] = {
    "queued": (
        "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
    ),
    "running": (
        "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED",
    ),
    "succeeded": ("COMPLETED",),
    "failed": ("FAILED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"),
    "cancelled": ("CANCELLED", "REVOKED"),
    "lost": ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED"),
}  # fmt: skip
STATES = {name: state for state, names in _BY_STATE.items() for name in names}
_REASONS = {
    "Resources": "waiting until enough GPUs are free",
    "Priority": "jobs with a higher priority go first",
    "Dependency": "waiting for the jobs that it depends on",
    "DependencyNeverSatisfied": "a job that it depends on did not succeed",
    "BeginTime": "Slurm restarts it in about two minutes",
    "JobHeldUser": "held by its user; release it with: scontrol release",
    "JobHeldAdmin": "held by an administrator",
    "JobHoldMaxRequeue": "Slurm requeued it too often and holds it; release it with: scontrol release",
    "JobArrayTaskLimit": "its array already runs the maximum number of tasks",
    "ReqNodeNotAvail": "the nodes that it could use are down or reserved",
    "PartitionNodeLimit": "its partition does not allow that many nodes per job",
    "PartitionTimeLimit": "its partition does not allow that much time per job",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "the nodes that it could use are down, drained, or reserved"
    ),
    "TimeLimit": "it reached its time limit",
    "NonZeroExitCode": "",
    "None": "",
}
WAITING_FOR_GPUS = frozenset({"Resources", "Priority", "None"})
"""Slurm's reasons of jobs that wait only until nodes are free."""


@dataclass(frozen=True)
class SlurmJob:
    """A job, or one task of a job array."""

    number: int
    task: str | None
    slurm_state: str
    exit_status: int | None
    """The exit status that a shell would report."""
    restarts: int
    node_count: int
    nodes: str
    """Slurm's notation: node[1-2]."""
    submitted: float | None
    started: float | None
    ended: float | None
    slurm_reason: str
    comment: str

    @property
    def state(self) -> State:
        return STATES.get(self.slurm_state, "unknown")

    @property
    def id(self) -> str:
        """The number of the job or, as in 17_3, of the task."""
        return f"{self.number}" if self.task is None else f"{self.number}_{self.task}"

    @property
    def is_held_after_launch(self) -> bool:
        """True if Slurm holds it because its script could not be started on a node."""
        return self.slurm_reason.replace(" ", "_") == "launch_failed_requeued_held"

    @property
    def is_final(self) -> bool:
        return self.state in {"succeeded", "failed", "cancelled", "lost"}

    @property
    def reason(self) -> str:
        if self.slurm_state in {"NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}:
            return f"Slurm reports {self.slurm_state}"
        return _REASONS.get(self.slurm_reason, self.slurm_reason.replace("_", " "))


def list_jobs(*options: str) -> list[SlurmJob]:
    """List this user's jobs that the controller remembers, or the jobs that these squeue options select."""
    options = options or (f"--user={os.getuid()}",)
    rows = query("squeue", _QUEUE, "--states=all", "--array", *options)
    jobs = []
    for row in rows:
        task = row["ArrayTaskID"]
        number = row["ArrayJobID" if _NUMBER.fullmatch(task) else "JobID"]
        jobs.append(_parse_row(row, number, task, row["Comment"]))
    return [job for job in jobs if job.number]


def find_jobs(number: int) -> list[SlurmJob]:
    """Find any user's job by its number; empty if Slurm does not know the number."""
    try:
        return list_jobs(f"--jobs={number}")
    except NoResponse:
        raise
    except GpuyardError:
        return []  # Invalid job id specified


def list_accounted_jobs(
    numbers: Sequence[int], *, submit_line_contains: str, comment: str
) -> list[SlurmJob]:
    """List jobs of Slurm's database, or nothing if there is none.

    A number can be reused, so the submit line must contain the given text. The database need not store comments.
    """
    try:
        rows = query(
            "sacct", _ACCOUNTING, "--allocations", "--duplicates", f"--jobs={','.join(map(str, numbers))}"
        )  # fmt: skip
    except GpuyardError:
        return []
    jobs = []
    for row in rows:
        if submit_line_contains in row["SubmitLine"]:
            number, _, task = row["JobID"].partition("_")
            jobs.append(_parse_row(row, number, task, comment))
    return [job for job in jobs if job.number]


def other_users_wait(partition: str) -> bool:
    """Return whether jobs of other users wait for nodes of this partition; "" is any."""
    options = (f"--partition={partition}",) if partition else ()
    rows = query("squeue", ("UserID", "Reason"), "--states=PENDING", *options)
    own = str(os.getuid())
    return any(row["UserID"] != own and row["Reason"] in WAITING_FOR_GPUS for row in rows)


def _parse_row(row: dict[str, str], number: str, task: str, comment: str) -> SlurmJob:
    return SlurmJob(
        number=_parse_count(number),
        task=task if _NUMBER.fullmatch(task) else None,
        slurm_state=row["State"].partition(" ")[0],  # "CANCELLED by 1000"
        exit_status=parse_exit_status(row.get("exit_code", row.get("ExitCode", ""))),
        restarts=_parse_count(row.get("RestartCnt", "")),
        node_count=_parse_count(row.get("NumNodes", row.get("NNodes", ""))),
        nodes=row["NodeList"],
        submitted=_parse_time(row.get("SubmitTime", row.get("Submit", ""))),
        started=_parse_time(row.get("StartTime", row.get("Start", ""))),
        ended=_parse_time(row.get("EndTime", row.get("End", ""))),
        slurm_reason=row.get("Reason", "None"),
        comment=comment,
    )


def parse_exit_status(text: str) -> int | None:
    """Parse "3:0" (status and signal) or the number that wait() returns, depending on Slurm's version."""
    status, colon, signal = text.partition(":")
    if colon and _NUMBER.fullmatch(status) and _NUMBER.fullmatch(signal):
        return int(status) or (128 + int(signal) if int(signal) else 0)
    if not _NUMBER.fullmatch(text):
        return None
    waited = int(text)
    return 128 + (waited & 127) if waited & 127 else waited >> 8


def _parse_count(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _parse_time(text: str) -> float | None:
    return float(_parse_count(text)) or None


def read_allocation(job: str) -> tuple[str | None, dict[str, int]]:
    """Read the state of a job and its GPUs on each node; None if Slurm no longer knows the job."""
    try:
        output = run("scontrol", "--oneliner", "--details", "show", "job", job)
    except GpuyardError as error:
        if "Invalid job id" not in str(error):
            raise
        return None, {}
    states = {match["job"]: match["state"] for match in _JOB_STATE.finditer(output)}
    gpus = {
        name: count_gpus(match["gres"])
        for match in _ALLOCATED.finditer(output)
        for name in expand_hostnames(match["nodes"])
    }
    return states.get(job), gpus
