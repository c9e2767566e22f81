"""Where everything about a user's jobs on this machine is."""

import os
from dataclasses import dataclass
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError


@dataclass(frozen=True)
class StartPaths:
    """The files of one start of a job."""

    directory: Path

    @property
    def lock(self) -> Path:
        """Held by the supervisor and all that it starts."""
        return self.directory / "lock"

    @property
    def order(self) -> Path:
        """What the runner tells the supervisor to do."""
        return self.directory / "order.json"

    @property
    def progress(self) -> Path:
        """How far the supervisor is: its place in the queue of leases, or its lease."""
        return self.directory / "progress.json"

    @property
    def end(self) -> Path:
        """How it ended; there only when it has."""
        return self.directory / "end.json"

    @property
    def log(self) -> Path:
        """What the job prints."""
        return self.directory / "log"

    @property
    def steps(self) -> Path:
        """What the job reports of its steps."""
        return self.directory / "steps"

    @property
    def supervisor_log(self) -> Path:
        """What goes wrong before there is a log of the job."""
        return self.directory / "supervisor.log"


@dataclass(frozen=True)
class JobPaths:
    """All of it, in a directory that only its user can enter."""

    directory: Path

    @classmethod
    def of_user(cls) -> "JobPaths":
        """By machine: where several share a home, none may take another's jobs for lost."""
        return cls(files.home().absolute() / "jobs" / "local" / os.uname().nodename)

    def make(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise GpuyardError(f"{self.directory} can't be made: {error.strerror}") from error

    @property
    def store(self) -> Path:
        return self.directory / "jobs.sqlite"

    @property
    def runner_lock(self) -> Path:
        return self.directory / "runner.lock"

    @property
    def runner_log(self) -> Path:
        return self.directory / "runner.log"

    def start(self, job: int, number: int) -> StartPaths:
        """Of the start with this number, from 1."""
        return StartPaths(self.directory / str(job) / str(number))
