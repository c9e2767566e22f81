"""Records of submitted jobs: one folder per job, named by its UUID, in the user's own directory.

The folder contains the script and the environment that were submitted, and Slurm's job numbers. The script adds a log
and a small JSON file for each start.
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.slurm.script.nodes import COMMENT, COMPANION_COMMENT
from gpuyard.jobs.engines.slurm.stored_values import build
from gpuyard.jobs.job import Handle, Job, JobState, JobSummary

if TYPE_CHECKING:
    from gpuyard.jobs.engines.slurm.request import SlurmRequest
    from gpuyard.jobs.engines.slurm.sizing import SpeedEstimate

SITE_FILE = Path("/etc/gpuyard/job_directory")
"""Names the directory for all users' jobs on a cluster without shared homes; `gpuyard deploy` writes it."""
_NAME = "submission.json"
_ENDED = "ended"
_NUMBERS = "numbers"
"""A directory with one for each of Slurm's numbers, whose entries are the UUIDs of the jobs that have had it."""
_FOLDER = re.compile(r"[0-9a-f-]{36}")
_MAX_BYTES = 50_000_000
_MAX_TASKS = 10_000


@dataclass(frozen=True)
class Submission:
    """One successful sbatch."""

    number: int
    at: float


@dataclass(frozen=True)
class TaskStatus:
    """The progress of a job, or of one task of an array."""

    state: JobState
    exit_status: int | None = None
    restarts: int = 0
    gpus: int | None = None
    nodes: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class SlurmRecord:
    """A submitted job, and its result once that is known."""

    document: dict[str, Any]
    """The JSON form of the job."""
    cluster: str
    gpus_per_node: int
    max_nodes: int
    array: str | None
    submissions: tuple[Submission, ...] = ()
    handle_id: str = ""
    canceled: bool = False
    speed_document: dict[str, Any] | None = None
    """The JSON form of its predicted speed."""
    elastic: bool = False
    result: TaskStatus | None = None

    @property
    def uuid(self) -> str:
        return str(self.document["uuid"])

    @cached_property
    def job(self) -> Job:
        """The job with its whole spec, which takes long to import."""
        try:
            return Job.from_document(self.document)
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(self.directory / _NAME, error) from error

    @cached_property
    def speed(self) -> "SpeedEstimate | None":
        """The predicted speed, which takes long to import."""
        if self.speed_document is None:
            return None
        from gpuyard.jobs.engines.slurm.sizing import SpeedEstimate

        try:
            return build(SpeedEstimate, self.speed_document)
        except TypeError as error:
            raise _damaged(self.directory / _NAME, error) from error

    @cached_property
    def summary(self) -> JobSummary:
        return JobSummary.from_document(self.document)

    @property
    def directory(self) -> Path:
        return job_directory(self.uuid)

    @property
    def tasks(self) -> Sequence[str | None]:
        """The tasks of its array; (None,) if it is no array."""
        return list_array_tasks(self.array)

    @property
    def handle(self) -> Handle:
        return Handle("slurm", self.handle_id or f"{self.cluster}/{self.uuid}")

    @property
    def script(self) -> Path:
        return self.directory / "script"

    @property
    def comment(self) -> str:
        """The comment that identifies the job in Slurm; a number can be given to another job."""
        return f"{COMMENT}{self.uuid}"

    @property
    def companion_comment(self) -> str:
        return f"{COMPANION_COMMENT}{self.uuid}"

    def read_environment(self) -> dict[str, str]:
        """Read the environment in which the job was submitted."""
        path = self.directory / "environment.json"
        document = json.loads(files.read_text(path, max_bytes=_MAX_BYTES))
        return {str(name): str(value) for name, value in document.items()}

    def add_submission(self, number: int, at: float, handle_id: str | None = None) -> "SlurmRecord":
        submissions = (*self.submissions, Submission(number, at))
        return replace(self, submissions=submissions, handle_id=handle_id or self.handle_id)

    def write(self) -> None:
        for submission in self.submissions:
            entry = _number_directory(str(submission.number)) / self.uuid
            if not entry.exists():
                files.create_parent(entry)
                for directory in (entry.parent, entry.parent.parent):
                    directory.chmod(0o700)
                files.write_text(entry, "", mode=0o600)
        text = json.dumps(asdict(self), indent=1) + "\n"
        files.write_text(self.directory / _NAME, text, mode=0o600)
        if self.result is not None:
            end = self.result.ended or self.summary.submitted
            mark = self.directory / _ENDED
            mark.touch(mode=0o600)
            os.utime(mark, (end, end))


def list_array_tasks(array: str | None) -> Sequence[str | None]:
    """Expand "0-9:2,15%4" to 0, 2, 4, 6, 8, 15; return (None,) for a job that is no array."""
    if array is None:
        return (None,)
    ranges = []
    for part in array.partition("%")[0].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        ranges.append(range(int(first), int(last or first) + 1, int(step or 1) or 1))
    if sum(map(len, ranges)) > _MAX_TASKS:
        raise UserMistake(f"an array has at most {_MAX_TASKS:,} tasks, got {array}")
    return tuple(map(str, dict.fromkeys(task for tasks in ranges for task in tasks)))


def _damaged(path: Path, error: Exception) -> GpuyardError:
    return GpuyardError(f"{path} is damaged: {str(error)[:200]}")


def _root() -> Path:
    """Return the user's directory of jobs: in gpuyard's data directory, or on the disk that the cluster's nodes share."""
    if os.environ.get("GPUYARD_HOME") or not SITE_FILE.exists():
        return files.home() / "jobs" / "slurm"
    site = Path(files.read_text(SITE_FILE).strip())
    root = site / pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        root.mkdir(mode=0o700)
    try:
        owner = root.lstat().st_uid
    except OSError as error:
        raise GpuyardError(
            f"{root}, which {SITE_FILE} names, cannot be used ({error.strerror}); mount it, or set GPUYARD_HOME"
        ) from error
    if owner != os.geteuid() or root.is_symlink():  # anyone may create directories there
        raise GpuyardError(
            f"{root} must belong to you; ask your administrator to remove it, or set GPUYARD_HOME"
        )
    return root


def _number_directory(number: str) -> Path:
    return _root() / _NUMBERS / number


def job_directory(uuid: str) -> Path:
    return (_root() / uuid).absolute()


def create(request: "SlurmRequest", environment: dict[str, str]) -> SlurmRecord:
    """Write the record of a job before it is submitted."""
    options = request.job.spec.slurm
    record = SlurmRecord(
        document=request.job.document(),
        cluster=request.cluster,
        gpus_per_node=request.gpus_per_node,
        max_nodes=request.max_nodes,
        array=options.array if options else None,
        speed_document=asdict(request.speed) if request.speed else None,
        elastic=request.elastic,
    )
    files.create_parent(record.directory / _NAME)
    record.directory.chmod(0o700)
    environment_file = record.directory / "environment.json"
    files.write_text(environment_file, json.dumps(environment), mode=0o600)
    files.write_text(record.script, request.text(), mode=0o700)
    record.write()
    return record


def read(uuid: str) -> SlurmRecord:
    """Read a record; raise GpuyardError if it is damaged and UserMistake if there is none."""
    path = job_directory(uuid) / _NAME
    text = files.read_text(path, max_bytes=_MAX_BYTES)
    try:
        record = build(SlurmRecord, json.loads(text))
        if record.uuid != uuid or not record.summary.command:
            raise ValueError("it is that of another job")
        return record
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from error


def read_all(ended: int | None = None) -> list[SlurmRecord]:
    """Read the undamaged records of open jobs and of the newest `ended` others (None: all) by their submission."""
    uuids = _list_uuids()
    if ended is not None:
        ends = _find_ends(uuids)
        newest = sorted(ends, key=lambda uuid: ends[uuid])[max(0, len(ends) - ended) :]
        uuids = [uuid for uuid in uuids if uuid not in ends or uuid in newest]
    records = []
    for uuid in uuids:
        with contextlib.suppress(GpuyardError):
            records.append(read(uuid))
    return sorted(records, key=lambda record: record.summary.submitted)


def read_named(name: str) -> list[SlurmRecord]:
    """Read the undamaged records of the jobs with a UUID, or with a number that Slurm gave them."""
    records = []
    for uuid in _list_named(name):
        with contextlib.suppress(GpuyardError):
            records.append(read(uuid))
    return sorted(records, key=lambda record: record.summary.submitted)


def _list_named(name: str) -> list[str]:
    if _FOLDER.fullmatch(name):
        return [name]
    if not name.isdecimal():
        return []
    try:
        return [path.name for path in _number_directory(name).iterdir()]
    except OSError:
        return []


def _list_uuids() -> list[str]:
    try:
        return [path.name for path in _root().iterdir() if _FOLDER.fullmatch(path.name)]
    except OSError:
        return []


def prune(before: float, *, limit: int = -1, dry_run: bool = False) -> int:
    """Delete the folders of up to `limit` jobs (-1: all) that ended before a time; return their number.

    A job stays if an open one depends on it.
    """
    old = [uuid for uuid, end in _find_ends(_list_uuids()).items() if end < before]
    needed = set[str]()
    for record in read_all(0) if old else ():
        needed.update(record.document["spec"].get("after", ()))
    pruned = 0
    for uuid in old:
        if pruned == limit:
            break
        with contextlib.suppress(GpuyardError):
            if needed and any(_names_job(handle, read(uuid)) for handle in needed):
                continue
        if not dry_run:
            _remove_numbers(uuid)
            shutil.rmtree(job_directory(uuid), ignore_errors=True)
        pruned += 1
    return pruned


def _remove_numbers(uuid: str) -> None:
    with contextlib.suppress(GpuyardError):
        for submission in read(uuid).submissions:
            directory = _number_directory(str(submission.number))
            (directory / uuid).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has another job
                directory.rmdir()


def _names_job(handle: str, record: SlurmRecord) -> bool:
    """Return whether a handle names a job or a task of it, by any number that Slurm gave it."""
    name = handle.rpartition("/")[2].partition("_")[0]
    numbers = {str(submission.number) for submission in record.submissions}
    return name in {record.handle_id.rpartition("/")[2], record.uuid, *numbers}


def _find_ends(uuids: Sequence[str]) -> dict[str, float]:
    """Return when the jobs with a known result ended, by the time of their marks: their records are not read."""
    ends = {}
    for uuid in uuids:
        with contextlib.suppress(OSError):
            ends[uuid] = os.lstat(job_directory(uuid) / _ENDED).st_mtime
    return ends


def find(handle: Handle) -> tuple[SlurmRecord, str | None]:
    """Find the job with this handle, and the array task that the handle names, if any."""
    cluster, _, name = handle.id.rpartition("/")
    name, _, task = name.partition("_")
    records = [r for r in read_named(name) if not cluster or r.cluster == cluster]
    # The number of a second submission also works, unless it is another job's handle.
    matches = (
        [record for record in records if record.handle_id.rpartition("/")[2] == name]
        or [record for record in records if record.uuid == name]
        or [r for r in records if name in {str(submission.number) for submission in r.submissions}]
    )
    if not matches:
        for uuid in _list_named(name):
            if job_directory(uuid).exists():
                read(uuid)  # Report a damaged record, which may be the one.
        raise UserMistake(
            f"no job {handle} was submitted from here; `gpuyard queue` lists your jobs"
        )
    return matches[-1], task or None


@contextlib.contextmanager
def lock(uuid: str, *, wait: bool = True) -> Iterator[bool]:
    """Lock a job's record for a submission; yield False if another process has it and `wait` is False."""
    directory = job_directory(uuid)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        files.create_parent(directory / _NAME)
        descriptor = os.open(directory / "submit.lock", flags, 0o600)
    except OSError as error:
        raise GpuyardError(f"{directory} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
