"""A share with 4 test GPUs, and jobs on it that are submitted by the command line and run as real processes."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import stop_processes
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.jobs.job import Handle
from gpuyard.share.setup import set_up
from tests.command_line import ROOT, Done, run_here

_PATIENCE_SECONDS = 120.0
GPUS = 4


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait until the condition returns something true, and return that; no test depends on how long it takes."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)
    return answer


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


class Jobs:
    """Jobs on this machine, through the command line that users have."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paths = JobPaths.for_user()

    def cli(self, *arguments: str) -> Done:
        """Run a command, whatever its exit status."""
        return run_here(*arguments, cwd=ROOT, environment=os.environ)

    def submit(self, *arguments: str) -> str:
        done = self.cli("submit", *arguments)
        assert done.returncode == 0, done.stderr
        handle, _, rest = done.stdout.partition("\n")
        assert (rest, done.stderr) == ("", "")
        return handle

    def status(self, handle: str) -> dict[str, Any]:
        return dict(json.loads(self.cli("status", handle, "--json").stdout))

    def state(self, handle: str) -> str:
        return str(self.status(handle)["state"])

    def wait(self, *handles: str) -> int:
        return int(self.cli("wait", *handles).returncode)

    def logs(self, handle: str) -> str:
        return str(self.cli("logs", handle).stdout)

    def runner(self) -> int:
        """Return the pid of the living runner."""
        return int(self.paths.runner_lock.read_text())

    def kill_runner(self) -> int:
        """Kill the runner, wait until the kernel has freed its lock, and return its pid."""
        pid = until(lambda: self.paths.runner_lock.read_text().strip(), "a runner's start")
        handle = os.pidfd_open(int(pid))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitid(os.P_PIDFD, handle, os.WEXITED)  # it is a child of this process
        os.close(handle)
        self.paths.runner_lock.write_text("")
        return int(pid)

    def supervisor(self, handle: str) -> int:
        """Wait until a job has its GPUs, and return the pid of its supervisor."""

        def find_pid() -> int | None:
            start = self.stored(handle).start
            return start.pid if start is not None and start.started is not None else None

        return int(until(find_pid, "the start of a supervisor"))

    def stored(self, handle: str) -> StoredJob:
        with Store(self.paths.store) as store:
            return store.job(Handle.parse(handle))

    def stop_all(self) -> None:
        """Stop the jobs that a failing test leaves."""
        if not self.paths.store.exists():
            return
        with Store(self.paths.store) as store:
            jobs = store.open_jobs()
            with store.transaction():
                store._connection.execute("UPDATE jobs SET state = 'cancelled', gpus = NULL")
        for job in jobs:
            if job.in_progress and job.start is not None:
                stop_processes(self.paths.start(job.number, job.start_count), job.start, 0.2)


@pytest.fixture
def jobs(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    set_up(home / "share", fake_gpus=GPUS, grace_seconds=0.5)
    local_jobs = Jobs(tmp_path)
    yield local_jobs
    local_jobs.stop_all()
