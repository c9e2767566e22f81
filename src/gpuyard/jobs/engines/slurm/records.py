"""What was submitted to Slurm, in the user's own directory: one folder a job, by our UUID.

The folder has the script and the environment that were submitted, the numbers that Slurm gave, and what the script
itself writes on the nodes: a log and a small file for each start.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.slurm.request import SlurmRequest, tasks_of_array
from gpuyard.jobs.engines.slurm.sizing import Speed
from gpuyard.jobs.job import Handle, Job

_ENGINE = "slurm"
_NAME = "submission.json"
_FOLDER = re.compile(r"[0-9a-f-]{36}")
_MOST_BYTES = 50_000_000


@dataclass(frozen=True)
class Submission:
    """Once through sbatch: the number, and when."""

    number: int
    at: float


@dataclass(frozen=True)
class SlurmRecord:
    """One job as it was submitted, and how it ended, once that is known."""

    job: Job
    cluster: str
    gpus_per_node: int
    most_nodes: int
    array: str | None
    submissions: tuple[Submission, ...] = ()
    handle_id: str = ""
    cancelled: bool = False
    speed: Speed | None = None
    elastic: bool = False
    end: dict[str, Any] = field(default_factory=dict)
    """Of a JobStatus; empty: it has not ended, as far as is known."""

    @property
    def directory(self) -> Path:
        return directory_of(self.job.uuid)

    @property
    def tasks(self) -> Sequence[str | None]:
        """Of its array; None alone where it is none."""
        return tasks_of_array(self.array)

    @property
    def handle(self) -> Handle:
        return Handle(_ENGINE, self.handle_id or f"{self.cluster}/{self.job.uuid}")

    @property
    def script(self) -> Path:
        return self.directory / "script"

    def environment(self) -> dict[str, str]:
        """Of whoever submitted it."""
        said = json.loads(
            files.read_text(self.directory / "environment.json", most_bytes=_MOST_BYTES)
        )
        return {str(name): str(value) for name, value in said.items()}

    def submitted_as(self, number: int, at: float, handle_id: str | None = None) -> "SlurmRecord":
        numbers = (*self.submissions, Submission(number, at))
        return replace(self, submissions=numbers, handle_id=handle_id or self.handle_id)

    def write(self) -> None:
        document = {
            "job": self.job.document(),
            "cluster": self.cluster,
            "gpus_per_node": self.gpus_per_node,
            "most_nodes": self.most_nodes,
            "array": self.array,
            "submissions": [[one.number, one.at] for one in self.submissions],
            "handle": self.handle_id,
            "cancelled": self.cancelled,
            "speed": None if self.speed is None else self.speed.document(),
            "elastic": self.elastic,
            "end": self.end,
        }
        files.write_text(self.directory / _NAME, json.dumps(document, indent=1) + "\n", mode=0o600)


def root() -> Path:
    return files.home() / "jobs" / "slurm"


def directory_of(uuid: str) -> Path:
    return (root() / uuid).absolute()


def create(request: SlurmRequest, environment: dict[str, str]) -> SlurmRecord:
    """On disk before Slurm is asked for anything."""
    directory = directory_of(request.job.uuid)
    files.make_parent(directory / _NAME)
    directory.chmod(0o700)
    own = request.job.spec.slurm
    record = SlurmRecord(
        job=request.job,
        cluster=request.cluster,
        gpus_per_node=request.gpus_per_node,
        most_nodes=request.most_nodes,
        array=own.array if own else None,
        speed=request.speed,
        elastic=request.elastic,
    )
    files.write_text(directory / "environment.json", json.dumps(environment), mode=0o600)
    files.write_text(record.script, request.text(), mode=0o700)
    record.write()
    return record


def read(uuid: str) -> SlurmRecord:
    """Raises GpuyardError where it is damaged, UserMistake where there is none."""
    path = directory_of(uuid) / _NAME
    text = files.read_text(path, most_bytes=_MOST_BYTES)
    try:
        said = json.loads(text)
        return SlurmRecord(
            job=Job.from_document(said["job"]),
            cluster=str(said["cluster"]),
            gpus_per_node=int(said["gpus_per_node"]),
            most_nodes=int(said["most_nodes"]),
            array=said["array"],
            submissions=tuple(Submission(int(n), float(at)) for n, at in said["submissions"]),
            handle_id=str(said["handle"]),
            cancelled=bool(said["cancelled"]),
            speed=Speed(**said["speed"]) if said.get("speed") else None,
            elastic=bool(said.get("elastic")),
            end=dict(said["end"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GpuyardError(f"{path} is damaged: {str(error)[:200]}") from error


def read_all() -> list[SlurmRecord]:
    """In the order in which they were submitted; damaged ones are left out."""
    found = []
    for name in _folders():
        with contextlib.suppress(GpuyardError):
            found.append(read(name))
    return sorted(found, key=lambda record: record.job.submitted)


def _folders() -> list[str]:
    try:
        return [path.name for path in root().iterdir() if _FOLDER.fullmatch(path.name)]
    except OSError:
        return []


def find(handle: Handle) -> tuple[SlurmRecord, str | None]:
    """The job of this handle, and the task of its array that the handle may name."""
    cluster, _, name = handle.id.rpartition("/")
    name, _, task = name.partition("_")
    of_cluster = [one for one in read_all() if not cluster or one.cluster == cluster]
    named = [one for one in of_cluster if one.handle_id.rpartition("/")[2] == name]
    # a number that Slurm gave on the second time is good as well, if nobody has it as his handle
    found = (
        named
        or [one for one in of_cluster if one.job.uuid == name]
        or [one for one in of_cluster if name in {str(sub.number) for sub in one.submissions}]
    )
    if not found:
        for folder in _folders():
            read(folder)  # one that is damaged may be meant
        raise UserMistake(
            f"no job {handle} was submitted from here; `gpuyard queue` lists those that were"
        )
    return found[-1], task or None


def is_taken(handle_id: str) -> bool:
    return any(one.handle_id == handle_id for one in read_all())


@contextlib.contextmanager
def held(uuid: str, *, wait: bool = True) -> Iterator[bool]:
    """Whether this process alone may submit, or submit again, this job now."""
    directory = directory_of(uuid)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        files.make_parent(directory / _NAME)
        descriptor = os.open(directory / "submit.lock", flags, 0o600)
    except OSError as error:
        raise GpuyardError(f"{directory} can't be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
