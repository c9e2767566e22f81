"""Files that the script wrote on the nodes: the result of each start, its log, and the steps that it reported.

Another user could put a link in place of a file if the directory let them. So gpuyard follows no links, and reads only
the user's own files.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuyard.errors import GpuyardError
from gpuyard.jobs import job_wait
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.stored_values import build
from gpuyard.jobs.job import JobState, JobStatus
from gpuyard.jobs.log_files import read_logs
from gpuyard.reporting.windows import StepsFile, StepWindow

_START = re.compile(r"\d+-\d+\.json")
_MESSAGES = re.compile(r"slurm-\d+\.out")


@dataclass(frozen=True)
class Start:
    """One start of a job, as recorded by the script on the first node."""

    number: int
    nodes: tuple[str, ...]
    gpus: int
    started: float
    ended: float | None
    outcome: Literal[
        "running", "succeeded", "failed", "lost", "cancelled", "checkpointed", "resized", "stopped"
    ]
    exit_status: int | None
    again: bool
    reason: str
    log: Path = Path()

    @property
    def final_state(self) -> JobState | None:
        """The state in which the job ended with this start; None if it runs or starts again."""
        if self.again or self.ended is None:
            return None
        match self.outcome:
            case "succeeded" | "failed" | "lost" | "cancelled":
                return self.outcome
            case _:
                return None


def read_starts(directory: Path, task: str | None = None) -> list[Start]:
    """Read the starts of a job, or of one task of its array, oldest first."""
    starts = []
    for path in _list_files(directory if task is None else directory / f"task-{task}"):
        if _START.fullmatch(path.name):
            with contextlib.suppress(GpuyardError, ValueError, TypeError, RecursionError):
                text = "".join(read_logs(lambda: [path], lambda: True, follow=False))  # noqa: B023
                document = {**json.loads(text), "log": path.with_suffix(".log")}
                starts.append(build(Start, document))
    return sorted(starts, key=lambda start: start.started)


def has_running_start(directory: Path, task: str | None = None) -> bool:
    """Return whether processes of a start hold its lock, on any node."""
    path = (directory if task is None else directory / f"task-{task}") / "running.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # It has never started.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # This disk has no locks.
    finally:
        os.close(lock)
    return False


def has_message_file(record: SlurmRecord, number: int, task: str | None) -> bool:
    """Return whether the script has run in Slurm's job with this number: it creates the file first."""
    directory = record.directory if task is None else record.directory / f"task-{task}"
    return os.path.lexists(directory / f"slurm-{number}.out")


def list_message_files(record: SlurmRecord) -> list[Path]:
    """List the files with the script's own messages, for a job that never started."""
    tasks = (record.directory / f"task-{task}" for task in record.tasks if task is not None)
    return [
        path
        for directory in (record.directory, *tasks)
        for path in sorted(_list_files(directory))
        if _MESSAGES.fullmatch(path.name)
    ]


def _list_files(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def add_progress(status: JobStatus, record: SlurmRecord) -> JobStatus:
    """Add the progress and the expected end if the job runs and reports its steps; the tasks of an array are many jobs."""
    if status.state != "running" or record.array is not None:
        return status
    return job_wait.add_progress(status, record.document, read_reports(record, tail_only=True))


def keep_measurements(record: SlurmRecord) -> None:
    """Put the reported steps of a finished job into the results store: every run is a measurement."""
    with contextlib.suppress(GpuyardError):  # The workload's file may be gone by now.
        job_wait.store_measurements(record.job, record.handle, read_reports(record))


def read_reports(record: SlurmRecord, *, tail_only: bool = False) -> Sequence[StepWindow]:
    """Read the steps that all starts of all tasks reported, in their step files or in their output.

    With `tail_only`, read only the latest of each start, however long its files are.
    """
    windows: list[StepWindow] = []
    for task in record.tasks:
        for start in read_starts(record.directory, task):
            for path in (start.log.with_suffix(".steps"), start.log):
                file = StepsFile.open_tail(path) if tail_only else StepsFile(path)
                while new := file.read():
                    windows += new
    return windows
