"""What runs jobs: the interface that every engine has, and which engines there are.

Planning and submitting are two steps, as in torchx: `plan` makes a `Request`, a value that can be printed
(`--dry-run` prints it), and `submit` is the only one with an effect.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar

from gpuyard.errors import GpuyardError, UnknownName
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.steps.windows import StepWindow, lines_of, windows_in

if TYPE_CHECKING:
    from gpuyard.jobs.explain import Explanation

GROUP = "gpuyard.engines"
"""Of the entry points by which other packages add an engine: `name = "package.module:Class"`."""
VARIABLE = "GPUYARD_ENGINE"
_OURS = {
    "slurm": "gpuyard.jobs.engines.slurm.engine:SlurmEngine",
    "local": "gpuyard.jobs.engines.local.engine:LocalEngine",
    "kubernetes": "gpuyard.jobs.engines.kubernetes.engine:KubernetesEngine",
}
"""In the order in which one is chosen."""


@dataclass(frozen=True)
class Availability:
    """Whether an engine can run jobs from here, and if not, why."""

    ok: bool
    reason: str = ""
    down: bool = False
    """It is set up here and does not answer now: jobs that are meant for it are not to go elsewhere."""


@dataclass(frozen=True)
class Request(ABC):
    """What would be submitted: everything is decided, and nothing has happened."""

    job: Job

    @abstractmethod
    def text(self) -> str:
        """Exactly what would run, as people read it: a script, a manifest, a command line."""

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {"job": self.job.document(), "text": self.text()}


class Engine(ABC):
    """One way to run jobs; made anew for each command, so its constructor takes nothing and does nothing slow."""

    name: ClassVar[str]
    """The first part of its handles."""
    keeps_measurements: ClassVar[bool] = False
    """Whether what its jobs report goes to the results store by itself; else when somebody waits for them."""
    plans_anywhere: ClassVar[bool] = False
    """Whether a dry run needs nothing of what `available` asks for."""

    @abstractmethod
    def available(self) -> Availability:
        """Whether it can be used from here; answers soon, and never raises."""

    @abstractmethod
    def plan(self, job: Job) -> Request:
        """What would be submitted. Raises where the engine can't do what the job asks for; has no effect."""

    @abstractmethod
    def submit(self, request: Any) -> Handle:
        """Hand over what `plan` of the same engine made."""

    @abstractmethod
    def status(self, handle: Handle) -> JobStatus:
        """How far it is. Raises UserMistake where there is no such job; one that can't be asked for is "unknown"."""

    @abstractmethod
    def list(self) -> Sequence[JobStatus]:
        """This user's jobs, in the order in which they were submitted."""

    @abstractmethod
    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        """What it has printed, in pieces; with `follow` until it has ended."""

    @abstractmethod
    def cancel(self, handle: Handle) -> None:
        """End it, or take it out of the queue; of one that has ended nothing changes."""

    def job(self, handle: Handle) -> Job:
        """What was submitted, so that it can be submitted again."""
        raise GpuyardError(f"what was submitted as {handle} is not kept; submit it again yourself")

    def reports(self, handle: Handle) -> Sequence[StepWindow]:
        """What it has reported of its steps; where it has no other way, it prints that."""
        return list(windows_in(lines_of(self.logs(handle, False))))

    def explain(self, handle: Handle) -> "Explanation | None":
        """Why it waits and when it will start; None where only the engine's own word (`reason`) is known."""
        del handle
        return None


def engine_names() -> Sequence[str]:
    """All that are installed: ours first, in the order in which one is chosen."""
    return tuple(_references())


def engine(name: str) -> Engine:
    """The one of this name. Raises where there is none."""
    references = _references()
    if name not in references:
        raise UnknownName("engine", name, references)
    module, _, attribute = references[name].partition(":")
    try:
        made = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise GpuyardError(f"the engine {name} can't be loaded: {error}") from error
    if not isinstance(made, Engine):
        raise GpuyardError(f"the engine {name} is not a gpuyard.jobs.engines.base.Engine")
    return made


def available_engines() -> Iterator[tuple[Engine, Availability]]:
    """Every engine that can be loaded, with whether it can be used."""
    for name in engine_names():
        try:
            found = engine(name)
        except GpuyardError:
            continue
        yield found, found.available()


def choose_engine(named: str | None = None, *, dry_run: bool = False) -> Engine:
    """The one that is named, by `$GPUYARD_ENGINE` too; else the first that can be used."""
    named = named or os.environ.get(VARIABLE) or None
    if named is not None:
        found = engine(named)
        if dry_run and found.plans_anywhere:
            return found
        availability = found.available()
        if not availability.ok:
            raise GpuyardError(f"the engine {named} can't be used here: {availability.reason}")
        return found
    reasons = []
    for found, availability in available_engines():
        if availability.ok:
            return found
        if availability.down:
            raise GpuyardError(
                f"the engine {found.name} is set up here, and can't be used now: {availability.reason}; "
                "to use another one, name it: --engine local"
            )
        reasons.append(f"{found.name}: {availability.reason}")
    raise GpuyardError("no engine can run jobs from here; " + "; ".join(reasons))


def _references() -> dict[str, str]:
    found = dict(_OURS)
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point.value)
    return found
