"""The engine in this process, and Slurm's own programs in a cluster that the tests start."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.slurm.engine import SlurmEngine
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.job import JobSpec
from tests.slurm_cluster import SlurmCluster, slurm_cluster

WAIT_SECONDS = 240.0
_PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct")
# a job has this PATH as well, and is inside already
_INSIDE = """\
#!/bin/sh
[ -z "$SLURMD_NODENAME" ] || exec {program} "$@"
exec {enter} --wdns="$PWD" {program} "$@"
"""
SOON = "KillWait=2\nSlurmdTimeout=20\nSchedulerParameters=batch_sched_delay=0,sched_interval=5\n"


@dataclass(frozen=True)
class Yard:
    """What a test does: submit, wait, look."""

    engine: SlurmEngine
    slurm: SlurmCluster
    directory: Path

    def plan(self, *command: str, **keys: Any) -> Any:
        spec = JobSpec.model_validate({"command": command, "cwd": str(self.directory), **keys})
        return self.engine.plan(Job.of(spec, now=time.time()))

    def submit(self, *command: str, **keys: Any) -> Handle:
        return self.engine.submit(self.plan(*command, **keys))

    def status(self, handle: Handle) -> JobStatus:
        return self.engine.status(handle)

    def until(self, handle: Handle, *states: str) -> JobStatus:
        """Until it is in one of them; else says how far it is."""
        found: list[JobStatus] = []

        def there() -> bool:
            found[:] = [self.status(handle)]
            return found[0].state in states

        until(there, lambda: f"{handle} is {states}: {found} {self.printed(handle)}", seconds=0.5)
        return found[0]

    def ended(self, handle: Handle) -> JobStatus:
        return self.until(handle, "succeeded", "failed", "cancelled", "lost")

    def printed(self, handle: Handle) -> str:
        return "".join(self.engine.logs(handle, follow=False))

    def file(self, name: str) -> str:
        """What is in it, once it is there and whole."""
        path = self.directory / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), lambda: f"{name} is there")
        return path.read_text()


def until(
    condition: Callable[[], object], what: Callable[[], str], *, seconds: float = 0.1
) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what()}"
        time.sleep(seconds)


@contextmanager
def a_yard(slurm: SlurmCluster, directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """Slurm's programs are those of the cluster, in this process and in all that it starts."""
    programs = directory / "programs"
    programs.mkdir()
    for name in _PROGRAMS:
        program = shutil.which(name) or pytest.skip(f"{name} is not here")
        (programs / name).write_text(_INSIDE.format(enter=" ".join(slurm.enter), program=program))
        (programs / name).chmod(0o755)
    own = Path(sys.executable).parent  # torchrun
    patch.setenv("PATH", os.pathsep.join((str(programs), str(own), os.environ["PATH"])))
    patch.setenv("SLURM_CONF", str(slurm.configuration))
    patch.setenv("GLOO_SOCKET_IFNAME", "lo")
    work = directory / "work"
    work.mkdir()
    yield Yard(SlurmEngine(), slurm, work)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """One for all tests that break nothing."""
    with slurm_cluster(4, SOON) as cluster:
        yield cluster


@pytest.fixture
def yard(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with a_yard(slurm, tmp_path, monkeypatch) as found:
        yield found
        for status in found.engine.list():
            if not status.final:
                found.engine.cancel(status.handle)
