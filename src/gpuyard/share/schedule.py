"""The values of the one decision for all jobs: what runners announce, the instructions that they get, and what is withheld for whom."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from gpuyard.errors import UserMistake

WAITING, STARTING, RUNNING, STOPPING = "waiting", "starting", "running", "stopping"
MAX_JOBS = 100
"""Jobs in one announcement. Those of a user that come later are announced when earlier ones have ended."""
MAX_SPEEDS = 1300
"""Speeds in one announcement, which then fits into one request. A job has one for each number of GPUs."""
_MAX_GPUS = 1024
_MAX_TEXT = 64  # characters
MAX_NUMBER = 1e15
"""The largest number in an announcement."""
_MAX_PRIORITY = 1000
_RUNNER = re.compile(r"[0-9a-f]{1,16}")


@dataclass(frozen=True)
class JobAnnouncement:
    """A job of the caller that has not ended. Other users do not see its command."""

    id: str
    name: str
    """The name that other users see, such as `local://17`."""
    phase: str
    """`waiting`, `starting` (its runner has started it, but it has no lease yet), `running`, or `stopping`."""
    min_gpus: int
    max_gpus: int
    requested_gpus: int
    speeds: tuple[float, ...]
    """Work per second with `min_gpus`, …, `max_gpus`."""
    remaining_work: float
    submitted: float
    gpus: int = 0
    """GPUs of its current start."""
    seconds: float | None = None
    """Its time limit."""
    deadline: float | None = None
    priority: int = 0
    """Orders the user's own jobs only."""
    elastic: bool = False
    restart_seconds: float = 0.0
    started: float | None = None
    attained_gpu_seconds: float = 0.0
    score: float | None = None
    assumed_length: bool = False
    """True if its length is assumed: neither its work and speed nor a time limit shows it."""

    def __post_init__(self) -> None:
        texts = (self.id, self.name)
        if not all(text and text.isprintable() and len(text) <= _MAX_TEXT for text in texts):
            raise UserMistake(f"the ID and name of a job must have 1 to {_MAX_TEXT} characters")
        if self.phase not in (WAITING, STARTING, RUNNING, STOPPING):
            raise UserMistake("the phase of a job must be waiting, starting, running, or stopping")
        if not 1 <= self.min_gpus <= self.requested_gpus <= self.max_gpus <= _MAX_GPUS:
            raise UserMistake("the GPUs of a job must be min ≤ requested ≤ max, from 1")
        if len(self.speeds) != self.max_gpus - self.min_gpus + 1:
            raise UserMistake("a job needs one speed for each number of GPUs from min to max")
        numbers = (
            self.remaining_work, self.submitted, self.restart_seconds, self.attained_gpu_seconds,
            self.seconds or 0.0, self.deadline or 0.0, self.started or 0.0, *self.speeds,
        )  # fmt: skip
        if not all(0 <= number <= MAX_NUMBER for number in numbers):
            raise UserMistake("a number of a job must be 0 or more, and finite")
        if not 0 <= self.gpus <= _MAX_GPUS or abs(self.priority) > _MAX_PRIORITY:
            raise UserMistake("the GPUs or the priority of a job are out of range")
        if not any(self.speeds):
            raise UserMistake("a job must make progress with some number of GPUs")
        if self.score is not None and not abs(self.score) <= MAX_NUMBER:
            raise UserMistake("the score of a job must be finite")

    @classmethod
    def from_document(cls, document: Any) -> "JobAnnouncement":
        """Build an announcement from JSON that another user sent."""
        if not isinstance(document, dict) or document.keys() - _TYPES.keys():
            raise UserMistake("this version of gpuyard does not know this announcement")
        values = {name: _decode(_TYPES[name], value) for name, value in document.items()}
        try:
            return cls(**values)
        except TypeError:
            raise UserMistake("an announced job lacks a required field") from None


_TYPES = get_type_hints(JobAnnouncement)


def _decode(hint: Any, value: Any) -> Any:
    if hint == tuple[float, ...] and isinstance(value, list | tuple) and len(value) <= _MAX_GPUS:
        return tuple(_decode(float, part) for part in value)
    if value is None and hint == float | None:
        return None
    if hint in (float, float | None) and type(value) in (int, float) and abs(value) <= MAX_NUMBER:
        return float(value)
    if hint in (str, int, bool) and type(value) is hint:
        return value
    raise UserMistake("an announced job has a value of the wrong type")


def decode_announcements(documents: Any) -> list[JobAnnouncement]:
    """Decode the announcement of a runner."""
    if not isinstance(documents, list) or len(documents) > MAX_JOBS:
        raise UserMistake(f"an announcement must be a list of at most {MAX_JOBS} jobs")
    jobs = [JobAnnouncement.from_document(document) for document in documents]
    if len({job.id for job in jobs}) < len(jobs):
        raise UserMistake("an announcement must name each job once")
    return jobs


def decode_runner(value: Any) -> str:
    """Decode the ID of a runner: the same user may have several home directories."""
    if not isinstance(value, str) or not _RUNNER.fullmatch(value):
        raise UserMistake("the ID of a runner must have 1 to 16 hexadecimal digits")
    return value


@dataclass(frozen=True)
class AnnouncedJob:
    """A job with its owner."""

    uid: int
    user: str
    group: str
    runner: str
    job: JobAnnouncement
    since: float
    """Its place in the queue: when it was submitted, but not before the share learned of it."""
    granted: int = 0
    """GPUs that are kept for it, because its runner was told to start it a moment ago."""

    @property
    def key(self) -> str:
        """An ID that is unique among all users."""
        return f"{self.uid}/{self.runner}/{self.job.id}"

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "AnnouncedJob":
        return cls(**{**document, "job": JobAnnouncement.from_document(document["job"])})


@dataclass(frozen=True)
class Withheld:
    """Idle GPUs that are kept for a waiting job or request."""

    gpus: int
    user: str
    name: str
    """The job or lease that they are kept for."""
    needs: int
    """GPUs with which it can start."""
    reason: str
    expected: float | None = None
    """When it is expected to start, in seconds since 1970; None if unknown."""
    assumed: bool = False
    """True if that depends on a job whose length is only assumed."""


@dataclass(frozen=True)
class ScheduleAnswer:
    """The instructions to a runner: GPUs by job."""

    starts: Mapping[str, int] = field(default_factory=dict)
    resizes: Mapping[str, int] = field(default_factory=dict)
    """Running jobs to stop so that they continue with this number of GPUs; 0: they wait."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why jobs wait."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ScheduleAnswer":
        return cls(
            {str(job): int(gpus) for job, gpus in document["starts"].items()},
            {str(job): int(gpus) for job, gpus in document["resizes"].items()},
            {str(job): str(reason) for job, reason in document["reasons"].items()},
        )


@dataclass(frozen=True)
class StoredDecision:
    """The decisions of the policy by job key, and the state that they are about."""

    signature: str = ""
    at_boot: float = 0.0
    cost_seconds: float = 0.0
    starts: Mapping[str, int] = field(default_factory=dict)
    resizes: Mapping[str, tuple[int, int, float]] = field(default_factory=dict)
    """GPUs, new number of GPUs, and when that was decided (boot clock)."""
    resized_boot: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    withheld_for: str | None = None
    """Key of the job or ID of the lease."""
    withheld: Withheld | None = None
    ahead: Sequence[str] = ()
    """IDs of requests that start now, before all others. Those of leases then ask for their GPUs."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "StoredDecision":
        withheld = document["withheld"]
        return cls(**{**document, "withheld": Withheld(**withheld) if withheld else None})


def round_speed(speed: float) -> float:
    """Round a speed to the four digits that matter, so that announcements stay short."""
    return float(f"{min(speed, MAX_NUMBER):.4g}")
