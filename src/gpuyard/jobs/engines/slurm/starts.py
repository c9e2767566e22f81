"""What the script wrote on the nodes: how each start of a job ended, what it printed, and what it reported of its steps.

Another user could have put a link where a log is expected, if the directory let them: no link is followed, and nothing
is read that belongs to somebody else.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gpuyard.errors import GpuyardError
from gpuyard.jobs import following
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.job import JobState, JobStatus
from gpuyard.steps.windows import StepsFile, StepWindow

_NAME = re.compile(r"\d+-\d+\.json")
_TASK = re.compile(r"task-(\d+)")
_MOST_BYTES = 1_000_000
_STATES: dict[str, JobState] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "lost": "lost",
    "cancelled": "cancelled",
}


@dataclass(frozen=True)
class Start:
    """One, as the script on the first node said."""

    log: Path
    number: int
    nodes: tuple[str, ...]
    gpus: int
    started: float
    ended: float | None
    outcome: str
    exit_status: int | None
    again: bool
    reason: str

    @property
    def end(self) -> JobState | None:
        """How the job ended with it; None: it has not, or starts again."""
        return None if self.again or self.ended is None else _STATES.get(self.outcome)


def starts_of(directory: Path, task: str | None = None) -> list[Start]:
    """Oldest first; of one task of an array, or of the job itself."""
    place = directory if task is None else directory / f"task-{task}"
    found = []
    for name in _names(place):
        if _NAME.fullmatch(name):
            with contextlib.suppress(GpuyardError):
                found.append(_start(place / name))
    return sorted(found, key=lambda start: start.started)


def tasks_of(directory: Path) -> list[str]:
    """Of its array, those that have started."""
    return sorted((m[1] for n in _names(directory) if (m := _TASK.fullmatch(n))), key=int)


def messages_of(directory: Path) -> list[Path]:
    """What the script itself has said, where it did not get to the job."""
    places = [directory, *(directory / f"task-{task}" for task in tasks_of(directory))]
    return [
        place / name
        for place in places
        for name in sorted(_names(place))
        if re.fullmatch(r"slurm-\d+\.out", name)
    ]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """For reading, if it is this user's own file and no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise GpuyardError(f"{path} can't be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise GpuyardError(f"{path} is not read: it is not a file of your own")
        yield file


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []


def _start(path: Path) -> Start:
    with opened(path) as file:
        text = file.read(_MOST_BYTES)
    try:
        said: dict[str, Any] = json.loads(text)
        ended, status = said["ended"], said["exit_status"]
        return Start(
            log=path.with_suffix(".log"),
            number=int(said["number"]),
            nodes=tuple(map(str, said["nodes"])),
            gpus=int(said["gpus"]),
            started=float(said["started"]),
            ended=None if ended is None else float(ended),
            outcome=str(said["outcome"]),
            exit_status=None if status is None else int(status),
            again=bool(said["again"]),
            reason=str(said["reason"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GpuyardError(f"{path} is damaged: {error}") from error


def with_progress(status: JobStatus, record: SlurmRecord) -> JobStatus:
    """The same with how far it is and when it will end, if it reports its steps; tasks of an array are many jobs."""
    if status.state != "running" or record.array is not None:
        return status
    return following.with_progress(status, record.job, _windows(record, None))


def keep_measurements(record: SlurmRecord) -> None:
    """Every run is a measurement: what a job that has ended reported goes to the results store."""
    with contextlib.suppress(GpuyardError):  # the workload's file may be gone by now
        following.keep_reported(record.job, record.handle, all_reports(record))


def all_reports(record: SlurmRecord) -> Sequence[StepWindow]:
    """Of all its starts; of an array, of all its tasks."""
    return [one for task in record.tasks for one in _windows(record, task)]


def _windows(record: SlurmRecord, task: str | None) -> Sequence[StepWindow]:
    """From the file that each start was given, and out of what it prints where it reports by itself."""
    found: list[StepWindow] = []
    for start in starts_of(record.directory, task):
        for path in (start.log.with_suffix(".steps"), start.log):
            file = StepsFile(path)
            while new := file.read():
                found += new
    return found
