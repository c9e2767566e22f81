"""A share with 4 test GPUs, jobs on it by the command line as users have it, and real processes that are killed."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import end_all, look
from gpuyard.jobs.engines.local.store import Store
from gpuyard.share.setup import set_up
from tests.command_line import ROOT, Done, run_here

_PATIENCE_SECONDS = 120.0
GPUS = 4


def until(found: Callable[[], Any], what: str = "it") -> Any:
    """What `found` returns once that is something; nothing is asserted about how long that takes."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (answer := found()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.05)
    return answer


def is_gone(pid: int) -> bool:
    """Also where nobody has waited for it yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


class Jobs:
    """Jobs on this machine, as a user has them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paths = JobPaths.of_user()

    def cli(self, *arguments: str) -> Done:
        """Whatever it ends with."""
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
        """The pid of the runner that lives now."""
        return int(self.paths.runner_lock.read_text())

    def kill_runner(self) -> int:
        """And know that it is gone: the kernel has freed its lock."""
        pid = until(lambda: self.paths.runner_lock.read_text().strip(), "a runner's start")
        handle = os.pidfd_open(int(pid))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitid(os.P_PIDFD, handle, os.WEXITED)  # it is a child of this process
        os.close(handle)
        self.paths.runner_lock.write_text("")
        return int(pid)

    def supervisor(self, handle: str) -> int:
        """The pid of the supervisor of a job that has its GPUs."""

        def found() -> int:
            row = self._row(handle)
            progress = look(self.paths.start(row.number, row.starts)).progress
            return progress.pid if progress is not None and progress.lease else 0

        return int(until(found, "a supervisor's start"))

    def _row(self, handle: str) -> Any:
        with Store(self.paths.store) as store:
            return store.rows()[int(handle.rpartition("/")[2]) - 1]

    def end(self) -> None:
        """What a failing test leaves."""
        if not self.paths.store.exists():
            return
        with Store(self.paths.store) as store:
            rows = store.open_rows()
            with store.transaction():
                store._connection.execute("UPDATE jobs SET state = 'cancelled', gpus = NULL")
        for row in rows:
            if row.in_progress:
                end_all(self.paths.start(row.number, row.starts), 0.2)


@pytest.fixture
def jobs(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    set_up(home / "share", fake_gpus=GPUS, grace_seconds=0.5)
    found = Jobs(tmp_path)
    yield found
    found.end()
