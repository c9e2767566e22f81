"""A job that was submitted, the handle by which people name it, and how far it is."""

import math
import os
import re
import uuid as uuids
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gpuyard.errors import UserMistake, quoted
from gpuyard.share.store.clock import stamp
from gpuyard.share.turns.when import parse_when
from gpuyard.specs.job import JobSpec
from gpuyard.steps.reporter import REPORT_VARIABLE

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost", "unknown"]
"""`lost`: its processes are gone and nobody knows how it ended. `unknown`: who runs it does not answer now."""
FINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled", "lost"})
UUID_VARIABLE = "GPUYARD_JOB"
GPUS_VARIABLE = "GPUYARD_GPUS"
NODES_VARIABLE = "GPUYARD_NODES"

_HANDLE = re.compile(r"([a-z][a-z0-9-]{0,39})://([A-Za-z0-9][\w.@:-]*(?:/[A-Za-z0-9][\w.@:-]*)*)")
_LONGEST_HANDLE = 300
_LAST_MOMENT = 250_000_000_000  # in the year 9892


@dataclass(frozen=True, order=True)
class Handle:
    """How a job is named everywhere: `local://17`, `slurm://cluster/17`."""

    engine: str
    id: str
    """As the engine reads it, with where it is: `17`, `cluster/17`, `namespace/name`."""

    def __str__(self) -> str:
        return f"{self.engine}://{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Raises where it is none."""
        match = _HANDLE.fullmatch(text) if len(text) <= _LONGEST_HANDLE else None
        if match is None:
            raise UserMistake(
                f"expected a handle like local://17 or slurm://cluster/17, got {quoted(text)}; "
                "`gpuyard queue` lists them"
            )
        return cls(match[1], match[2])


@dataclass(frozen=True)
class Job:
    """What is to run, with everything that depends on where and when it was submitted said."""

    uuid: str
    """Our own name for it, which no engine gives twice."""
    spec: JobSpec
    cwd: Path
    """Absolute."""
    submitted: float
    """Seconds since 1970."""
    deadline: float | None = None
    """Seconds since 1970."""

    @classmethod
    def of(cls, spec: JobSpec, *, now: float, directory: Path | None = None) -> "Job":
        """A new one; `directory` is that of the file which its relative paths are meant from."""
        here = Path.cwd()
        cwd = here if spec.cwd is None else (directory or here) / Path(spec.cwd).expanduser()
        if directory is not None and spec.workload is not None and _is_file(spec.workload):
            spec = spec.model_copy(update={"workload": str((directory / spec.workload).absolute())})
        return cls(
            uuid=str(uuids.uuid4()),
            spec=spec,
            cwd=Path(os.path.normpath(cwd.absolute())),
            submitted=now,
            deadline=None if spec.deadline is None else parse_when(spec.deadline, now),
        )

    def again(self, now: float) -> "Job":
        """The same as a new submission: a deadline stays the moment that it was."""
        return replace(self, uuid=str(uuids.uuid4()), submitted=now)

    @property
    def name(self) -> str:
        return self.spec.title

    def gpus_per_node(self, gpus: int) -> int:
        """Of so many in total."""
        return gpus // (self.spec.nodes or 1)

    def environment(self, gpus: int) -> dict[str, str]:
        """What it sees beside the environment of whoever submitted it."""
        # a job whose workload is known is a measurement; an engine with a file for it names that, too
        reports = {} if self.spec.workload is None else {REPORT_VARIABLE: "stdout"}
        return {
            **reports,
            **self.spec.env,
            UUID_VARIABLE: self.uuid,
            GPUS_VARIABLE: str(gpus),
            NODES_VARIABLE: str(self.spec.nodes or 1),
        }

    def document(self) -> dict[str, Any]:
        """For a store; `from_document` reads it."""
        return {
            "uuid": self.uuid,
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "cwd": str(self.cwd),
            "submitted": self.submitted,
            "deadline": self.deadline,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Job":
        """Raises ValueError (pydantic's is one), KeyError or TypeError where it is none."""
        deadline = document["deadline"]
        return cls(
            uuid=str(uuids.UUID(str(document["uuid"]))),
            spec=JobSpec.model_validate(document["spec"]),
            cwd=Path(document["cwd"]),
            submitted=_moment(document["submitted"]),
            deadline=None if deadline is None else _moment(deadline),
        )


def _moment(said: Any) -> float:
    """Seconds since 1970 that a calendar has: what is shown of it is a date."""
    moment = float(said) if not isinstance(said, int) or abs(said) <= _LAST_MOMENT else math.nan
    if not abs(moment) <= _LAST_MOMENT:
        raise ValueError(f"{moment} is no moment")
    return moment


@dataclass(frozen=True)
class JobStatus:
    """How far a job is, as its engine says it now."""

    handle: Handle
    state: JobState
    uuid: str = ""
    """Empty where the engine lists what gpuyard did not submit."""
    name: str = ""
    user: str = ""
    restarts: int = 0
    exit_status: int | None = None
    """As a shell says it: 128 + the signal's number where one ended it."""
    gpus: int | None = None
    """That it has, or had last; None: none yet."""
    min_gpus: int = 1
    max_gpus: int = 1
    nodes: tuple[str, ...] = ()
    submitted: float | None = None
    """This and what follows in seconds since 1970."""
    started: float | None = None
    ended: float | None = None
    deadline: float | None = None
    priority: int = 0
    done: float | None = None
    """Share of its work, where it reports its steps and it is known how many there are."""
    samples_per_second: float | None = None
    expected_end: float | None = None
    loss: float | None = None
    """As it reports it, over its last reports."""
    reason: str = ""
    """In words: what it waits for, or why it is not known how it is."""
    command: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    """Files with what it has printed, one for each start."""

    @property
    def final(self) -> bool:
        """Nothing will change it but a retry."""
        return self.state in FINAL

    def document(self) -> dict[str, Any]:
        """For programs; moments as ISO 8601."""
        moments = ("submitted", "started", "ended", "deadline", "expected_end")
        return {
            **asdict(self),
            "handle": str(self.handle),
            "nodes": list(self.nodes),
            "command": list(self.command),
            "logs": list(self.logs),
            **{name: stamp(getattr(self, name)) for name in moments},
        }


def _is_file(workload: str) -> bool:
    return workload.endswith((".yaml", ".yml"))
