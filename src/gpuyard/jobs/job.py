"""A submitted job, its handle, and its status."""

import math
import os
import re
import time
import uuid as uuids
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuyard.errors import UserMistake, quote
from gpuyard.files import expand_home
from gpuyard.reporting.reporter import REPORT_VARIABLE
from gpuyard.share.clock import iso_timestamp
from gpuyard.share.timeparse import parse_time

if TYPE_CHECKING:
    from gpuyard.policies.curve import StepParts
    from gpuyard.specs.job import JobSpec

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost", "unknown"]
"""`lost`: its processes are gone, and its exit status is unknown. `unknown`: its engine is unreachable right now."""
SpeedBasis = Literal["measured", "predicted"]
FINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled", "lost"})
UUID_VARIABLE = "GPUYARD_JOB"
GPUS_VARIABLE = "GPUYARD_GPUS"
NODES_VARIABLE = "GPUYARD_NODES"

_HANDLE = re.compile(r"([a-z][a-z0-9-]{0,39})://([A-Za-z0-9][\w.@:-]*(?:/[A-Za-z0-9][\w.@:-]*)*)")
_MAX_HANDLE = 300
_MAX_TIMESTAMP = 250_000_000_000  # in the year 9892


@dataclass(frozen=True, order=True)
class Handle:
    """The name of a job everywhere: `local://17`, `slurm://cluster/17`."""

    engine: str
    id: str
    """The engine's own id, including the location: `17`, `cluster/17`, `namespace/name`."""

    def __str__(self) -> str:
        return f"{self.engine}://{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Raise UserMistake if the text is not a handle."""
        match = _HANDLE.fullmatch(text) if len(text) <= _MAX_HANDLE else None
        if match is None:
            raise UserMistake(
                f"expected a handle like local://17 or slurm://cluster/17, got {quote(text)}; "
                "`gpuyard queue` lists them"
            )
        return cls(match[1], match[2])


@dataclass(frozen=True)
class Job:
    """A job with everything that depends on where and when it was submitted."""

    uuid: str
    """gpuyard's own id, unique across engines."""
    spec: "JobSpec"
    cwd: Path
    """Absolute path of the working directory."""
    submitted: float
    """Seconds since 1970."""
    deadline: float | None = None
    """Seconds since 1970."""

    @classmethod
    def create(cls, spec: "JobSpec", *, now: float, directory: Path | None = None) -> "Job":
        """Create a job from a spec; relative paths in the spec are relative to `directory`."""
        here = Path.cwd()
        cwd = here if spec.cwd is None else (directory or here) / expand_home(spec.cwd)
        if directory is not None and spec.workload is not None and _is_file(spec.workload):
            spec = spec.model_copy(update={"workload": str((directory / spec.workload).absolute())})
        return cls(
            uuid=str(uuids.uuid4()),
            spec=spec,
            cwd=Path(os.path.normpath(cwd.absolute())),
            submitted=now,
            deadline=None if spec.deadline is None else parse_time(spec.deadline, now),
        )

    def resubmit(self, now: float) -> "Job":
        """Return the same job as a new submission, with the same absolute deadline."""
        return replace(self, uuid=str(uuids.uuid4()), submitted=now)

    @property
    def name(self) -> str:
        return title_job(self.spec.name, self.spec.command)

    def gpus_per_node(self, gpus: int) -> int:
        """Divide the job's GPUs equally among its nodes."""
        return gpus // (self.spec.nodes or 1)

    def environment(self, gpus: int) -> dict[str, str]:
        """Return the variables that the job gets in addition to the submitter's environment."""
        # a job that names its workload is a measurement; an engine with a report file adds that file
        reports = {} if self.spec.workload is None else {REPORT_VARIABLE: "stdout"}
        return {
            **reports,
            **self.spec.env,
            UUID_VARIABLE: self.uuid,
            GPUS_VARIABLE: str(gpus),
            NODES_VARIABLE: str(self.spec.nodes or 1),
        }

    def document(self) -> dict[str, Any]:
        """Return the JSON form, which `from_document` reads."""
        return {
            "uuid": self.uuid,
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "cwd": str(self.cwd),
            "submitted": self.submitted,
            "deadline": self.deadline,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Job":
        """Raise ValueError (which includes pydantic's), KeyError, or TypeError if the document is invalid."""
        from gpuyard.specs.job import JobSpec  # takes longer to import than most commands need

        deadline = document["deadline"]
        return cls(
            uuid=str(uuids.UUID(str(document["uuid"]))),
            spec=JobSpec.model_validate(document["spec"]),
            cwd=Path(document["cwd"]),
            submitted=_parse_timestamp(document["submitted"]),
            deadline=None if deadline is None else _parse_timestamp(deadline),
        )


@dataclass(frozen=True)
class JobSummary:
    """The facts of a job that a list shows."""

    name: str
    command: tuple[str, ...]
    min_gpus: int
    max_gpus: int
    priority: int
    submitted: float
    deadline: float | None
    resumes: bool
    """True if it continues from a checkpoint after a stop."""
    samples: float | None
    has_workload: bool

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "JobSummary":
        """Read a document that `Job.document` wrote; it contains no value that is the default of its key."""
        spec = document["spec"]
        gpus = spec.get("gpus", {})
        command = tuple(spec["command"])
        return cls(
            name=title_job(spec.get("name", ""), command),
            command=command,
            min_gpus=gpus.get("min", 1),
            max_gpus=gpus.get("max", 1),
            priority=spec.get("priority", 0),
            submitted=document["submitted"],
            deadline=document["deadline"],
            resumes=spec.get("checkpoint") is not None,
            samples=spec.get("samples"),
            has_workload=spec.get("workload") is not None,
        )


def title_job(name: str, command: Sequence[str]) -> str:
    """Return the name of a job, or of its program."""
    return name or command[0].rpartition("/")[2] or command[0]


def _parse_timestamp(value: Any) -> float:
    """Accept only seconds since 1970 that can be shown as a date."""
    too_large = isinstance(value, int) and abs(value) > _MAX_TIMESTAMP  # float() may overflow
    timestamp = math.nan if too_large else float(value)
    if not abs(timestamp) <= _MAX_TIMESTAMP:
        raise ValueError(f"{timestamp} is not a valid timestamp")
    return timestamp


@dataclass(frozen=True)
class ExpectedSpeed:
    """Samples per second with their 90% interval."""

    samples_per_second: float
    low: float
    high: float
    parts: "StepParts | None" = None
    """The predicted parts of its step."""


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, as its engine reports it now."""

    handle: Handle
    state: JobState
    uuid: str = ""
    """Empty if gpuyard did not submit the job."""
    name: str = ""
    user: str = ""
    restarts: int = 0
    exit_status: int | None = None
    """The status that a shell would show: 128 + the signal's number if a signal ended the job."""
    gpus: int | None = None
    """The GPUs that the job has or had last; None if it has had none yet."""
    min_gpus: int = 1
    max_gpus: int = 1
    nodes: tuple[str, ...] = ()
    submitted: float | None = None
    """Seconds since 1970, as are the next three."""
    started: float | None = None
    ended: float | None = None
    deadline: float | None = None
    priority: int = 0
    done: float | None = None
    """The completed share of its work, if the job reports its steps and the total is known."""
    samples_per_second: float | None = None
    speed_basis: SpeedBasis | None = None
    """True if the speed, and with it the expected end, is measured or predicted."""
    expected_end: float | None = None
    loss: float | None = None
    """The mean of the last reported losses."""
    expected_speed: ExpectedSpeed | None = None
    """The speed of a running job that was predicted at its submission."""
    mfu: float | None = None
    """Its model FLOPs utilization, if the catalog has its model and its GPUs."""
    verdict: str = ""
    """Sentences about a running job's speed and what a gap costs, if its ranks report their phases or it was predicted."""
    checkpoints: Mapping[str, Any] | None = None
    """The best checkpoint interval and the job's own, once it has reported a checkpoint."""
    reason: str = ""
    """A sentence: what the job waits for, or why its state is unknown."""
    canceling: bool = False
    """True if somebody canceled the job and its processes have not ended yet."""
    command: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    """Files with its output, one for each start."""

    @property
    def final(self) -> bool:
        """True if the job has ended and only a retry can start it again."""
        return self.state in FINAL

    @property
    def elapsed_seconds(self) -> float | None:
        """Return the time from its first start to its end or until now; None if it never started."""
        if self.started is None or (self.final and self.ended is None):
            return None
        return max(0.0, (time.time() if self.ended is None else self.ended) - self.started)

    def document(self) -> dict[str, Any]:
        """Return the JSON form, with times in ISO 8601."""
        times = ("submitted", "started", "ended", "deadline", "expected_end")
        return {
            **asdict(self),
            "handle": str(self.handle),
            "nodes": list(self.nodes),
            "command": list(self.command),
            "logs": list(self.logs),
            **{name: iso_timestamp(getattr(self, name)) for name in times},
            "elapsed_seconds": self.elapsed_seconds,
        }


def _is_file(workload: str) -> bool:
    return workload.endswith((".yaml", ".yml"))
