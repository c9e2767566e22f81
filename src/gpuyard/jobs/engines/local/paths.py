"""The files of a user's jobs on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError


@dataclass(frozen=True)
class StartPaths:
    """The files of one start of a job. The job store has its state; only the lock says whether it is alive."""

    directory: Path

    @property
    def lock(self) -> Path:
        """The lock that the supervisor and all processes it starts hold."""
        return self.directory / "lock"

    @property
    def log(self) -> Path:
        """The output of the job."""
        return self.directory / "log"

    @property
    def steps(self) -> Path:
        """The reports of the job about its training steps."""
        return self.directory / "steps"

    @property
    def gpu_samples(self) -> Path:
        """The use, memory, and power of its GPUs over time."""
        return self.directory / "gpus"

    @property
    def exit_status(self) -> Path:
        """The exit status of the job's command, as soon as it has ended."""
        return self.directory / "exit"

    @property
    def supervisor_log(self) -> Path:
        """The errors of a supervisor that did not get as far as the job's log."""
        return self.directory / "supervisor.log"


@dataclass(frozen=True)
class JobPaths:
    """The files of all jobs, in a directory that only their user can enter."""

    directory: Path

    @classmethod
    def for_user(cls) -> "JobPaths":
        """Return this user's paths on this machine.

        The host name is part of them: machines that share a home must not take each other's jobs for lost.
        """
        return cls(files.home().absolute() / "jobs" / "local" / os.uname().nodename)

    def create(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise GpuyardError(f"{self.directory} cannot be created: {error.strerror}") from error

    @property
    def store(self) -> Path:
        return self.directory / "jobs.sqlite"

    @property
    def runner_lock(self) -> Path:
        return self.directory / "runner.lock"

    @property
    def runner_log(self) -> Path:
        return self.directory / "runner.log"

    def job(self, number: int) -> Path:
        """Return the directory with the files of all starts of a job."""
        return self.directory / str(number)

    def start(self, job: int, number: int) -> StartPaths:
        """Return the paths of one start; `number` counts from 1."""
        return StartPaths(self.job(job) / str(number))
