"""Runners and supervisors are killed again and again, at any moment; every job still runs, and never twice at once."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuyard.jobs.engines.local.store import Store
from gpuyard.share.processes import ProcessMatcher, find_processes, start_time
from tests.jobs.engines.local.conftest import Jobs, jobs

__all__ = ["jobs"]
pytestmark = pytest.mark.soak
_RUNNER_KILL_JOBS = 40
_SUPERVISOR_KILL_JOBS = 6
_SUPERVISOR_KILLS = 30
# fails if another start of the job runs at the same time
_RUN_ONCE = 'mkdir "$GPUYARD_JOB" && echo $GPUYARD_JOB >> ran; sleep 0.$((RANDOM % 5)); rmdir "$GPUYARD_JOB"'
# notes if another start of the job runs at the same time, and fails until the test has killed enough
_RUN_ALONE = """
exec 9> "$GPUYARD_JOB"
flock -n 9 || touch twice-at-once
sleep 0.$((RANDOM % 9))
test -e may-succeed
"""


@pytest.mark.parametrize("seed", range(3))
def test_every_job_runs_once_however_often_the_runner_is_killed(jobs: Jobs, seed: int) -> None:
    chance = random.Random(seed)
    kills = 0
    handles = []
    for _ in range(_RUNNER_KILL_JOBS):
        options = ("--retries", "0", "--gpus", str(chance.randint(1, 4)))
        command = (
            sys.executable,
            "-m",
            "gpuyard",
            "submit",
            *options,
            "--",
            "bash",
            "-c",
            _RUN_ONCE,
        )
        done = subprocess.run(
            command, cwd=jobs.directory, capture_output=True, text=True, check=True
        )
        handles.append(done.stdout.strip())
        time.sleep(chance.uniform(0, 0.4))
        kills += kill_runner(jobs)
    while not all(jobs.state(handle) == "succeeded" for handle in handles[-8:]):
        time.sleep(chance.uniform(0, 1.0))
        kills += kill_runner(jobs)
    exit_status = jobs.wait(*handles)
    statuses = [jobs.status(handle) for handle in handles]
    assert exit_status == 0, [status for status in statuses if status["state"] != "succeeded"]
    assert kills > _RUNNER_KILL_JOBS / 4
    assert {status["restarts"] for status in statuses} == {0}
    ran = (jobs.directory / "ran").read_text().split()
    assert sorted(ran) == sorted(status["uuid"] for status in statuses)


@pytest.mark.parametrize("seed", range(3))
def test_every_job_succeeds_however_often_supervisors_are_killed(jobs: Jobs, seed: int) -> None:
    chance = random.Random(seed)
    here = jobs.directory
    (here / "run.sh").write_text(_RUN_ALONE)
    file = here / "alone.job.yaml"
    file.write_text("command: [bash, run.sh]\ncwd: .\nretries: {failed: 1000, lost: 1000}\n")
    handles = [jobs.submit(str(file)) for _ in range(_SUPERVISOR_KILL_JOBS)]
    kills = 0
    while kills < _SUPERVISOR_KILLS:
        time.sleep(chance.uniform(0, 0.5))
        kills += kill_a_start(jobs, chance)
        if chance.random() < 0.3:
            kill_runner(jobs)
        jobs.cli("queue")  # starts a runner if there is none
        assert not (here / "twice-at-once").exists()
    (here / "may-succeed").touch()
    exit_status = jobs.wait(*handles)
    statuses = [jobs.status(handle) for handle in handles]
    assert exit_status == 0, [status for status in statuses if status["state"] != "succeeded"]
    assert {status["exit_status"] for status in statuses} == {0}
    assert sum(jobs.stored(handle).lost_count for handle in handles) > 0
    assert not (here / "twice-at-once").exists()


def kill_a_start(jobs: Jobs, chance: random.Random) -> int:
    """Kill the supervisor of a start, every other time together with its command; return the number of starts killed."""
    with Store(jobs.paths.store) as store:
        starts = [job.start for job in store.open_jobs() if job.in_progress]
    started = [start for start in starts if start is not None and start.pid is not None]
    if not started:
        return 0
    start = chance.choice(started)
    assert start.pid is not None
    pids = [start.pid] if start_time(start.pid) == start.process_start else []
    if start.lease and chance.random() < 0.5:
        pids += find_processes(ProcessMatcher(start.lease, os.getuid()))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def kill_runner(jobs: Jobs) -> bool:
    try:
        pid = jobs.runner()
        handle = os.pidfd_open(pid)
    except (OSError, ValueError):  # it has ended, or not yet begun
        return False
    try:
        if str(jobs.paths.directory) not in Path(f"/proc/{pid}/cmdline").read_text():
            return False  # another process has this pid now
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    jobs.paths.runner_lock.write_text("")
    return True
