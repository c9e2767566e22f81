"""The engine runs in this process, and Slurm's programs in a cluster that the tests start."""

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
# A job inherits this PATH but already runs inside the cluster.
_ENTER_SCRIPT = """\
#!/bin/sh
[ -z "$SLURMD_NODENAME" ] || exec {program} "$@"
exec {enter} --wdns="$PWD" {program} "$@"
"""
FAST = "KillWait=2\nSlurmdTimeout=20\nSchedulerParameters=batch_sched_delay=0,sched_interval=5\n"


@dataclass(frozen=True)
class Yard:
    """Submits jobs and waits for them."""

    engine: SlurmEngine
    slurm: SlurmCluster
    directory: Path

    def plan(self, *command: str, **keys: Any) -> Any:
        spec = JobSpec.model_validate({"command": command, "cwd": str(self.directory), **keys})
        return self.engine.plan(Job.create(spec, now=time.time()))

    def submit(self, *command: str, **keys: Any) -> Handle:
        return self.engine.submit(self.plan(*command, **keys))

    def status(self, handle: Handle) -> JobStatus:
        return self.engine.status(handle)

    def until(self, handle: Handle, *states: str) -> JobStatus:
        """Wait until the job is in one of these states."""
        latest = self.status(handle)

        def has_state() -> bool:
            nonlocal latest
            latest = self.status(handle)
            return latest.state in states

        until(
            has_state, lambda: f"{handle} is {states}: {latest} {self.output(handle)}", seconds=0.5
        )
        return latest

    def wait(self, handle: Handle) -> JobStatus:
        return self.until(handle, "succeeded", "failed", "cancelled", "lost")

    def output(self, handle: Handle) -> str:
        return "".join(self.engine.logs(handle, follow=False))

    def read_file(self, name: str) -> str:
        """Return the content of a file once it is complete."""
        path = self.directory / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), lambda: f"{name} exists")
        return path.read_text()


def until(
    condition: Callable[[], object], describe: Callable[[], str], *, seconds: float = 0.1
) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {describe()}"
        time.sleep(seconds)


@contextmanager
def create_yard(slurm: SlurmCluster, directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """Run Slurm's programs inside the cluster, for this process and all that it starts."""
    programs = directory / "programs"
    programs.mkdir()
    for name in _PROGRAMS:
        program = shutil.which(name) or pytest.skip(f"{name} not found")
        script = _ENTER_SCRIPT.format(enter=" ".join(slurm.enter), program=program)
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    python_bin = Path(sys.executable).parent  # has torchrun
    patch.setenv("PATH", os.pathsep.join((str(programs), str(python_bin), os.environ["PATH"])))
    patch.setenv("SLURM_CONF", str(slurm.configuration))
    patch.setenv("GLOO_SOCKET_IFNAME", "lo")
    work = directory / "work"
    work.mkdir()
    yield Yard(SlurmEngine(), slurm, work)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """One cluster for all tests that do not break it."""
    with slurm_cluster(4, FAST) as cluster:
        yield cluster


@pytest.fixture
def yard(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with create_yard(slurm, tmp_path, monkeypatch) as created:
        yield created
        for status in created.engine.list():
            if not status.final:
                created.engine.cancel(status.handle)
