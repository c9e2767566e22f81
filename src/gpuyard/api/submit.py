"""Submit a job to an engine, and follow it: `job = gy.submit(["python", "train.py"], gpus="2..8"); job.wait()`."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuyard.api.result import Result, Row
from gpuyard.catalog.specfiles import known_names, read_job
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import expand_home
from gpuyard.jobs.engines.base import Engine, choose_engine, load_engine
from gpuyard.jobs.engines.local.engine import LocalEngine
from gpuyard.jobs.job import Handle, Job
from gpuyard.jobs.job_wait import get_status, wait_for_jobs
from gpuyard.report.answers.jobs.status import status_answer
from gpuyard.specs.job import JobSpec
from gpuyard.specs.spec_errors import explain_value
from gpuyard.units import parse_seconds

_PRUNED_PER_SUBMISSION = 10


@dataclass(frozen=True)
class SubmittedJob:
    """A job of an engine, known by its handle."""

    handle: Handle

    def status(self) -> Result[Row]:
        """Return everything that is known about the job; its `state` is queued, running, succeeded, …"""
        return Result(status_answer(get_status(self._engine, self.handle)))

    def wait(self, timeout: str | float | None = None) -> Result[Row]:
        """Wait until the job has ended, or until the timeout, and return its status."""
        seconds = parse_seconds(timeout) if isinstance(timeout, str) else timeout
        (status,) = wait_for_jobs([self.handle], wait_seconds=seconds)
        return Result(status_answer(status))

    def logs(self) -> str:
        """Return what the job has printed so far."""
        return "".join(self._engine.logs(self.handle, False))

    def follow(self) -> Iterator[str]:
        """Yield what the job prints until it ends."""
        yield from self._engine.logs(self.handle, True)

    def cancel(self) -> None:
        """Stop the job, or remove it from the queue."""
        self._engine.cancel(self.handle)

    @property
    def _engine(self) -> Engine:
        return load_engine(self.handle.engine)

    def __str__(self) -> str:
        return str(self.handle)


@dataclass(frozen=True)
class Submission:
    """A job that is ready to be submitted, with the request that its engine would send."""

    job: Job
    engine: Engine
    request: Any

    def submit(self) -> SubmittedJob:
        """Submit it, and delete the records of a few jobs that ended long ago."""
        submitted = SubmittedJob(self.engine.submit(self.request))
        with contextlib.suppress(GpuyardError):
            before = time.time() - LocalEngine().keep_seconds()
            self.engine.prune(before, limit=_PRUNED_PER_SUBMISSION)
        return submitted


def submit(
    command: str | Path | Sequence[str] = (), *, engine: str | None = None, **options: Any
) -> SubmittedJob:
    """Submit a command as a list of words, or a *.job.yaml.

    `options` are those of `gpuyard submit`, and override the file: gpus="2..8", deadline="Fri 18:00", env={"A": "1"}.
    """
    what = [str(command)] if isinstance(command, str | Path) else list(command)
    return prepare(what, options, engine=engine).submit()


def prepare(
    what: Sequence[str],
    options: dict[str, Any],
    *,
    engine: str | None = None,
    dry_run: bool = False,
) -> Submission:
    """Create the job and its engine's request, without any effect."""
    job = create_job(what, options)
    chosen = choose_engine(engine or job.spec.engine, dry_run=dry_run)
    return Submission(job, chosen, chosen.plan(job))


def create_job(what: Sequence[str], options: dict[str, Any]) -> Job:
    """Create a job from `[FILE] [COMMAND…]` and options, which override the file."""
    document: dict[str, Any] = {}
    command = list(what)
    if command and command[0].endswith((".yaml", ".yml")):
        document = _read_file(Path(command.pop(0)))
    if command:
        options["command"] = command
    if "command" not in {**document, **options}:
        raise UserMistake(
            "the command is missing; use gpuyard submit --gpus 2 -- python train.py, or "
            "gpuyard submit train.job.yaml"
        )
    if "env" in options:
        options["env"] = {**document.get("env", {}), **options["env"]}
    spec: JobSpec = _validate({**document, **options})
    return Job.create(spec, now=time.time(), directory=Path.cwd())


def _read_file(path: Path) -> dict[str, Any]:
    """Read a job file and make its paths, which are relative to the file, absolute."""
    spec = read_job(path)
    directory = path.absolute().parent
    document = spec.model_dump(mode="json", exclude_defaults=True)
    if spec.cwd is not None:
        document["cwd"] = str(directory / expand_home(spec.cwd))
    if spec.workload is not None and spec.workload.endswith((".yaml", ".yml")):
        document["workload"] = str(directory / spec.workload)
    cluster = spec.slurm.cluster if spec.slurm else None
    if cluster is not None and cluster.endswith((".yaml", ".yml")):
        document["slurm"]["cluster"] = str(directory / cluster)
    return document


def _validate(document: dict[str, Any]) -> Any:
    try:
        return JobSpec.model_validate(document, context=known_names())
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        sentence = explain_value(mistake)
        if not mistake["loc"] or mistake["loc"][0] == "command":
            raise UserMistake(sentence) from None
        option = str(mistake["loc"][0]).replace("_", "-")
        raise UserMistake(f"--{option}: {sentence}") from None
