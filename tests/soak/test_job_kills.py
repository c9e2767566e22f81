"""Runners are killed again and again, at any moment; every job still runs, once."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.engines.local.conftest import Jobs, jobs

__all__ = ["jobs"]
pytestmark = pytest.mark.soak
_JOBS = 40
_NOTE = 'mkdir "$GPUYARD_JOB" && echo $GPUYARD_JOB >> ran; sleep 0.$((RANDOM % 5)); rmdir "$GPUYARD_JOB"'


@pytest.mark.parametrize("seed", range(3))
def test_every_job_runs_once_however_often_the_runner_is_killed(jobs: Jobs, seed: int) -> None:
    chance = random.Random(seed)
    line = (sys.executable, "-m", "gpuyard", "submit", "--retries", "0")
    kills = 0
    handles = []
    for _ in range(_JOBS):
        done = subprocess.run(
            (*line, "--gpus", str(chance.randint(1, 4)), "--", "bash", "-c", _NOTE),
            cwd=jobs.directory,
            capture_output=True,
            text=True,
            check=True,
        )
        handles.append(done.stdout.strip())
        time.sleep(chance.uniform(0, 0.4))
        kills += _kill_runner(jobs)
    while not all(jobs.status(handle)["state"] == "succeeded" for handle in handles[-8:]):
        time.sleep(chance.uniform(0, 1.0))
        kills += _kill_runner(jobs)
    ended = jobs.wait(*handles)
    statuses = [jobs.status(handle) for handle in handles]
    assert ended == 0, [status for status in statuses if status["state"] != "succeeded"]
    assert kills > _JOBS / 4
    assert {status["restarts"] for status in statuses} == {0}
    ran = (jobs.directory / "ran").read_text().split()
    assert sorted(ran) == sorted(status["uuid"] for status in statuses)


def _kill_runner(jobs: Jobs) -> bool:
    try:
        pid = jobs.runner()
        handle = os.pidfd_open(pid)
    except (OSError, ValueError):  # it has ended, or not yet begun
        return False
    try:
        if str(jobs.paths.directory) not in Path(f"/proc/{pid}/cmdline").read_text():
            return False  # the number is another's by now
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    jobs.paths.runner_lock.write_text("")
    return True
