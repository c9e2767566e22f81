"""The interface of engines, which run jobs, and the registry of engines.

Planning and submitting are two steps, as in torchx. `plan` returns a `Request`, a value that `--dry-run` prints;
only `submit` has an effect.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from gpuyard.errors import GpuyardError, UnknownName
from gpuyard.jobs.gpu_samples import GpuSample, samples_of_ranks
from gpuyard.jobs.job import ExpectedSpeed, Handle, Job, JobStatus
from gpuyard.reporting.ranks import RankWindow, parse_rank_windows
from gpuyard.reporting.windows import StepWindow, parse_windows, split_lines

if TYPE_CHECKING:
    from gpuyard.jobs.explain import Explanation

ENTRY_POINT_GROUP = "gpuyard.engines"
"""Other packages add an engine with an entry point in this group: `name = "package.module:Class"`."""
ENGINE_VARIABLE = "GPUYARD_ENGINE"
_BUILT_IN = {
    "slurm": "gpuyard.jobs.engines.slurm.engine:SlurmEngine",
    "local": "gpuyard.jobs.engines.local.engine:LocalEngine",
    "kubernetes": "gpuyard.jobs.engines.kubernetes.engine:KubernetesEngine",
}
"""Built-in engines, in order of preference."""
_AVAILABILITY = {
    "slurm": "gpuyard.jobs.engines.slurm.availability:check_availability",
    "kubernetes": "gpuyard.jobs.engines.kubernetes.availability:check_availability",
}
"""Checks of engines that take long to import, for commands that look at all engines."""


@dataclass(frozen=True)
class Availability:
    """The availability of an engine on this machine, and the reason if it is not available."""

    ok: bool
    reason: str = ""
    down: bool = False
    """True if it is set up here but unreachable now. Its jobs must then not go to another engine."""
    refuses: str = ""
    """Why it accepts no new jobs, although those that it has can be listed."""


@dataclass(frozen=True)
class Request(ABC):
    """A planned submission: everything is decided, and nothing has happened yet."""

    job: Job
    caveats: tuple[str, ...] = field(default=(), kw_only=True)
    """Sentences about settings that the engine treats differently; `submit` prints them."""

    @abstractmethod
    def text(self) -> str:
        """Return exactly what would run, for people: a script, a manifest, or a command line."""

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"job": self.job.document(), "text": self.text()}


class Engine(ABC):
    """One way to run jobs. Each command creates one, so the constructor has no parameters and is fast."""

    name: ClassVar[str]
    """The engine's name, which is also the first part of its jobs' handles."""
    keeps_measurements: ClassVar[bool] = False
    """True if it stores its jobs' measurements itself; otherwise `gpuyard wait` does."""
    plans_anywhere: ClassVar[bool] = False
    """True if a dry run works even if the engine is not available."""

    @abstractmethod
    def available(self) -> Availability:
        """Return whether it can be used from here; must be quick and must not raise."""

    @abstractmethod
    def plan(self, job: Job) -> Request:
        """Return the planned submission without any effect; raise if the engine cannot run this job."""

    @abstractmethod
    def submit(self, request: Any) -> Handle:
        """Submit a request that the same engine planned."""

    @abstractmethod
    def status(self, handle: Handle) -> JobStatus:
        """Return the job's status, "unknown" if the engine is unreachable; raise UserMistake if it does not exist."""

    @abstractmethod
    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        """Return this user's open jobs and the newest `ended` others (None: all), in order of submission."""

    def find_number(self, number: str) -> Sequence[Handle]:
        """Return the handles of this user's jobs that end with a number; an engine with many jobs looks it up."""
        handles = [job.handle for job in self.list(None)]
        return [handle for handle in handles if str(handle).rpartition("/")[2] == number]

    @abstractmethod
    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        """Yield the job's output in chunks; with `follow`, until it has ended."""

    @abstractmethod
    def cancel(self, handle: Handle) -> None:
        """Stop the job or remove it from the queue; do nothing if it has ended."""

    def prune(self, before: float, *, limit: int = -1, dry_run: bool = False) -> int:
        """Delete the records of up to `limit` jobs (-1: all) that ended before a time, and return their number.

        A job stays if an open one depends on it. By default, the engine keeps no records.
        """
        del before, limit, dry_run
        return 0

    def job(self, handle: Handle) -> Job:
        """Return the submitted job, so that it can be submitted again."""
        raise GpuyardError(
            f"the original submission of {handle} is not available; submit the job again with gpuyard submit"
        )

    def reports(self, handle: Handle) -> Sequence[StepWindow]:
        """Return the job's step reports; by default, they are read from its output."""
        return list(parse_windows(split_lines(self.logs(handle, False))))

    def rank_reports(self, handle: Handle) -> Sequence[RankWindow]:
        """Return what the ranks of the job's newest start report; by default, from its output."""
        return parse_rank_windows(split_lines(self.logs(handle, False)))

    def gpu_samples(self, handle: Handle) -> Sequence[GpuSample]:
        """Return the state of the job's GPUs over time; by default, as its ranks report it."""
        return samples_of_ranks(self.rank_reports(handle))

    def expected_speed(self, handle: Handle) -> ExpectedSpeed | None:
        """Return the speed that was predicted at the submission, on the job's GPUs; None if it is unknown."""
        del handle
        return None

    def explain(self, handle: Handle) -> "Explanation | None":
        """Explain why the job waits and when it will start; None if only the status's `reason` is known."""
        del handle
        return None


def select_newest(jobs: Sequence[JobStatus], ended: int | None) -> list[JobStatus]:
    """Return the jobs that have not ended and the newest `ended` others (None: all), in the same order."""
    if ended is None:
        return list(jobs)
    by_end = sorted((job for job in jobs if job.final), key=lambda job: job.ended or 0.0)
    skipped = {job.handle for job in by_end[: max(0, len(by_end) - ended)]}
    return [job for job in jobs if job.handle not in skipped]


def list_engines() -> Sequence[str]:
    """Return the names of all installed engines, in order of preference."""
    return tuple(_find_references())


def load_engine(name: str) -> Engine:
    """Load the engine with this name; raise UnknownName if there is none."""
    # other packages are searched only for a name that is not built in
    references = _BUILT_IN if name in _BUILT_IN else _find_references()
    if name not in references:
        raise UnknownName("engine", name, references)
    try:
        loaded = _import_reference(references[name])()
    except (ImportError, AttributeError) as error:
        raise GpuyardError(f"engine {name} cannot be loaded: {error}") from error
    if not isinstance(loaded, Engine):
        raise GpuyardError(f"engine {name} is not a gpuyard.jobs.engines.base.Engine")
    return loaded


def check_engines() -> Iterator[tuple[str, Availability]]:
    """Yield the name of every engine that can be loaded and whether it is available."""
    for name in list_engines():
        if name in _AVAILABILITY:
            yield name, _import_reference(_AVAILABILITY[name])()
            continue
        try:
            engine = load_engine(name)
        except GpuyardError:
            continue
        yield name, engine.available()


def choose_engine(name: str | None = None, *, dry_run: bool = False) -> Engine:
    """Return the engine with this name or that of `$GPUYARD_ENGINE`; otherwise the first available one."""
    name = name or os.environ.get(ENGINE_VARIABLE) or None
    if name is not None:
        engine = load_engine(name)
        if dry_run and engine.plans_anywhere:
            return engine
        availability = engine.available()
        if not availability.ok or availability.refuses:
            reason = availability.reason or availability.refuses
            raise GpuyardError(f"engine {name} cannot be used here: {reason}")
        return engine
    reasons = []
    for available_name, availability in check_engines():
        if availability.ok and not availability.refuses:
            return load_engine(available_name)
        if availability.down:
            raise GpuyardError(
                f"engine {available_name} is set up here but cannot be used now: {availability.reason}; "
                "to use another one, name it: --engine local"
            )
        reasons.append(f"{available_name}: {availability.reason or availability.refuses}")
    raise GpuyardError("no engine can run jobs from here; " + "; ".join(reasons))


def _import_reference(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def list_engine_names() -> list[str]:
    """List all installed engines by name."""
    return list(_find_references())


def _find_references() -> dict[str, str]:
    references = dict(_BUILT_IN)
    if not any(map(_may_add_engines, sys.path)):
        return references
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP):
        references.setdefault(point.name, point.value)
    return references


def _may_add_engines(directory: str) -> bool:
    """Return whether a package in a directory may add engines; this takes a tenth of the time of `entry_points`."""
    group = ENTRY_POINT_GROUP.encode()
    try:
        with os.scandir(directory or ".") as entries:
            infos = [e.path for e in entries if e.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return os.path.isfile(directory)  # noqa: PTH113 - a ZIP archive; Path takes long to import
    for info in infos:
        try:
            with open(f"{info}/entry_points.txt", "rb") as file:  # noqa: PTH123
                if group in file.read():
                    return True
        except OSError:
            continue
    return False
