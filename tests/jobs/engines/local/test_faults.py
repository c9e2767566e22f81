"""Faults while jobs run: runners and supervisors are killed, disks fill up. No job is lost, and none runs twice at once."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import create_lock, is_alive, spawn_supervisor
from gpuyard.jobs.engines.local.store import Store
from gpuyard.jobs.engines.local.transitions import close_dead_starts, record_progress
from gpuyard.jobs.job import Job
from gpuyard.jobs.log_files import open_log
from gpuyard.jobs.work_estimate import WorkEstimate
from gpuyard.policies.curve import Curve
from gpuyard.reporting.reporter import MARKER
from gpuyard.share.setup import set_up
from gpuyard.specs.job import JobSpec, Retries
from tests.deploy.small_disk import fill, small_disk
from tests.jobs.engines.local.conftest import GPUS, Jobs, is_gone, until

# Records its pid, fails if another start runs at the same time, and ends when the file may-end exists.
EXCLUSIVE = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
with (here / "starts").open("a") as starts:
    starts.write(f"{os.getpid()}\\n")
(here / "runs").mkdir()
print("start", os.getpid(), flush=True)
while not (here / "may-end").exists():
    time.sleep(0.05)
(here / "runs").rmdir()
print("end", flush=True)
"""


def write_exclusive_program(directory: Path) -> tuple[str, ...]:
    (directory / "exclusive.py").write_text(EXCLUSIVE)
    return (sys.executable, str(directory / "exclusive.py"), str(directory))


def read_pids(directory: Path) -> list[int]:
    file = directory / "starts"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_job_survives_its_killed_runner_and_the_next_one_adopts_it(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--", *write_exclusive_program(here))
    until(lambda: read_pids(here), "the job's start")
    first = jobs.kill_runner()
    assert not is_gone(read_pids(here)[0])
    assert jobs.state(handle) == "running"  # this command has started another runner
    second = until(lambda: jobs.paths.runner_lock.read_text().strip(), "another runner")
    assert int(second) != first
    (here / "may-end").touch()
    assert jobs.wait(handle) == 0
    assert len(read_pids(here)) == 1
    status = jobs.status(handle)
    assert (status["restarts"], status["exit_status"]) == (0, 0)
    assert jobs.logs(handle) == f"start {read_pids(here)[0]}\nend\n"


def test_a_job_that_ends_without_a_runner_has_its_end_in_the_store(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--", *write_exclusive_program(here))
    until(lambda: read_pids(here), "the job's start")
    supervisor = jobs.supervisor(handle)
    jobs.kill_runner()
    (here / "may-end").touch()
    until(lambda: is_gone(supervisor), "its end")
    assert jobs.state(handle) == "succeeded"


def test_jobs_that_wait_for_a_dead_runner_start_after_the_next_command(jobs: Jobs) -> None:
    here = jobs.directory
    first = jobs.submit("--gpus", "4", "--", *write_exclusive_program(here))
    until(lambda: read_pids(here), "the job's start")
    second = jobs.submit("--gpus", "4", "--", "true")
    jobs.kill_runner()
    (here / "may-end").touch()
    assert '"local://2"' in jobs.cli("queue", "--json").stdout
    assert jobs.wait(first, second) == 0
    assert jobs.status(second)["restarts"] == 0


@pytest.mark.parametrize("keeps", ["both", "its lock", "its environment"])
def test_a_job_without_its_supervisor_finishes_and_does_not_run_again(
    jobs: Jobs, keeps: str
) -> None:
    here = jobs.directory
    command = write_exclusive_program(here)
    if keeps == "its lock":
        command = ("env", "-i", *command)
    elif keeps == "its environment":
        (here / "exclusive.py").write_text(f"import os\nos.closerange(3, 256)\n{EXCLUSIVE}")
    handle = jobs.submit("--", *command)
    until(lambda: read_pids(here), "the job's start")
    kill(jobs.supervisor(handle))
    for _ in range(3):
        assert jobs.state(handle) == "running"
    assert len(read_pids(here)) == 1
    (here / "may-end").touch()
    assert jobs.wait(handle) == 0
    status = jobs.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("succeeded", 0, 0)
    assert len(read_pids(here)) == 1
    assert jobs.logs(handle) == f"start {read_pids(here)[0]}\nend\n"


def test_the_failure_of_a_job_without_its_supervisor_is_known(jobs: Jobs) -> None:
    wait = "touch begun; until test -e may-end; do sleep .1; done; exit 3"
    handle = jobs.submit("--cwd", str(jobs.directory), "--", "sh", "-c", wait)
    until((jobs.directory / "begun").exists, "the start of its command")
    kill(jobs.supervisor(handle))
    (jobs.directory / "may-end").touch()
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("failed", 3, 0)


def test_a_stopped_runner_is_replaced_by_the_next_command(jobs: Jobs) -> None:
    here = jobs.directory
    first = jobs.submit("--gpus", "4", "--", *write_exclusive_program(here))
    until(lambda: read_pids(here), "the job's start")
    runner = jobs.runner()
    os.kill(runner, signal.SIGSTOP)
    until(lambda: "(stopped)" in Path(f"/proc/{runner}/status").read_text(), "its stop")
    second = jobs.submit("--gpus", "4", "--", "true")
    until(lambda: is_gone(runner), "the end of the runner that does nothing")
    (here / "may-end").touch()
    assert jobs.wait(first, second) == 0
    assert jobs.runner() != runner
    assert len(read_pids(here)) == 1


def test_a_hung_runner_is_replaced_by_the_next_command(jobs: Jobs) -> None:
    jobs.paths.create()
    hang = (
        "import fcntl, os, sys, time\n"
        "lock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=lock, flush=True)\n"
        "os.utime(sys.argv[1], (0, time.time() - 3600))\n"
        "print('hangs', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = (sys.executable, "-c", hang, str(jobs.paths.runner_lock))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as hung:
        assert hung.stdout is not None
        assert hung.stdout.readline() == "hangs\n"
        handle = jobs.submit("--", "true")
        assert hung.wait(60) == -signal.SIGKILL
    assert jobs.wait(handle) == 0


def test_a_lost_job_is_restarted_up_to_its_retries(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--retries", "1", "--", *write_exclusive_program(here))
    for number in (1, 2):
        until(lambda: len(read_pids(here)) == number, "a start")  # noqa: B023
        kill(jobs.supervisor(handle), read_pids(here)[-1])
        (here / "runs").rmdir()
        if number == 1:
            until(lambda: jobs.status(handle)["restarts"] == 1, "the restart")
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["restarts"], status["exit_status"]) == ("lost", 1, None)


def test_retries_for_lost_jobs_do_not_apply_to_failed_jobs(jobs: Jobs) -> None:
    count = 'echo x >> count; exit "$(wc -l < count)"'
    handle = jobs.submit("--retries", "5", "--cwd", str(jobs.directory), "--", "sh", "-c", count)
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("failed", 1, 0)


def test_a_failed_job_is_retried_if_its_file_says_so(jobs: Jobs) -> None:
    (jobs.directory / "train.job.yaml").write_text(
        "command: [sh, -c, 'echo x >> count; test \"$(wc -l < count)\" = 3']\ncwd: .\n"
        "retries: {failed: 2}\n"
    )
    handle = jobs.submit(str(jobs.directory / "train.job.yaml"))
    assert jobs.wait(handle) == 0
    assert (jobs.status(handle)["restarts"], jobs.status(handle)["exit_status"]) == (2, 0)


def test_concurrent_submissions_share_a_runner_and_each_job_runs_once(jobs: Jobs) -> None:
    line = (sys.executable, "-m", "gpuyard", "submit", "--", "sh", "-c", "echo $GPUYARD_JOB >> ran")
    started = [
        subprocess.Popen(line, cwd=jobs.directory, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    handles = [process.communicate()[0].strip() for process in started]
    assert sorted(handles) == [f"local://{number}" for number in range(1, 4)]
    assert jobs.wait(*handles) == 0
    ran = (jobs.directory / "ran").read_text().split()
    assert sorted(ran) == sorted(jobs.status(handle)["uuid"] for handle in handles)


def test_nothing_is_queued_if_no_runner_can_be_started(jobs: Jobs) -> None:
    first = jobs.submit("--", "true")
    assert jobs.wait(first) == 0
    until(lambda: not _runs(jobs), "the end of the idle runner")
    jobs.paths.runner_log.unlink()
    jobs.paths.runner_log.symlink_to("/etc/passwd")
    done = jobs.cli("submit", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert "runner" in done.stderr
    assert '"local://2"' not in jobs.cli("queue", "--json", "--all").stdout


def test_the_status_of_a_waiting_job_reports_that_no_runner_can_be_started(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--", "true")
    jobs.kill_runner()
    jobs.paths.runner_log.unlink()
    jobs.paths.runner_log.symlink_to("/etc/passwd")
    assert "runner" in jobs.status(handle)["reason"]
    jobs.paths.runner_log.unlink()
    jobs.cli("cancel", hold)
    assert jobs.wait(handle) == 0


def test_files_that_a_killed_runner_left_do_not_prevent_a_start(
    jobs: Jobs,
) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--", "true")
    jobs.paths.start(2, 1).directory.mkdir(parents=True)
    jobs.paths.start(2, 1).lock.touch()
    jobs.cli("cancel", hold)
    assert jobs.wait(handle) == 0
    assert jobs.status(handle)["restarts"] == 0


def test_a_job_is_not_lost_if_its_runner_was_killed_before_it_spawned_a_supervisor(
    home: Path,
) -> None:
    paths = JobPaths.for_user()
    paths.create()
    spec = JobSpec(command=("true",), retries=Retries(lost=0))
    with Store(paths.store) as store:
        handle = store.add_job(Job.create(spec, now=0.0), {}, WorkEstimate())
        with create_lock(paths.start(1, 1)):
            start = store.add_start(store.job(handle), gpus=1)
            assert start is not None
            os.close(
                open_log(paths.start(1, 1).supervisor_log)
            )  # the runner's last step before it spawns
            close_dead_starts(store, paths)
            assert store.job(handle).in_progress
        close_dead_starts(store, paths)
        job = store.job(handle)
        assert (job.state, job.in_progress, job.restarts) == ("queued", False, 0)

        with create_lock(paths.start(1, 2)):
            start = store.add_start(job, gpus=1)
            assert start is not None
            record_progress(
                store, replace(start, pid=1, process_start=1)
            )  # a supervisor's first step
        close_dead_starts(store, paths)
        assert store.job(handle).state == "lost"


def test_the_error_of_a_failed_supervisor_is_the_reason_of_the_job(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--retries", "0", "--", *write_exclusive_program(jobs.directory))
    jobs.cli("cancel", hold)
    until(lambda: read_pids(jobs.directory), "the job's start")
    jobs.paths.start(2, 1).supervisor_log.write_text("Traceback\nNo such thing\n\n")
    kill(jobs.supervisor(handle), *read_pids(jobs.directory))
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["reason"]) == ("lost", "No such thing")


@pytest.mark.parametrize("supervisor", ["survives", "is killed"])
def test_a_full_disk_neither_loses_nor_invents_an_exit_status(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervisor: str
) -> None:
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    set_up(home / "share", fake_gpus=GPUS, grace_seconds=0.5)
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        monkeypatch.setenv("GPUYARD_HOME", str(disk))
        jobs = Jobs(tmp_path)
        wait_then_exit = "echo $$ > pid; until test -e may-end; do sleep 0.05; done; exit 7"
        options = ("--retries", "0", "--cwd", str(tmp_path))
        handle = jobs.submit(*options, "--", "sh", "-c", wait_then_exit)
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        supervisor_pid = jobs.supervisor(handle)
        fill(disk / "filler")
        (tmp_path / "may-end").touch()
        until(lambda: is_gone(pid), "the end of the command")
        until(lambda: jobs.cli("who", "--json").stdout.count('"command"') == 0, "a free GPU")
        assert jobs.state(handle) == "running"
        assert not is_gone(supervisor_pid)
        if supervisor == "is killed":
            kill(supervisor_pid)
        (disk / "filler").unlink()
        assert jobs.wait(handle) == 1
        status = jobs.status(handle)
        expected = ("failed", 7) if supervisor == "survives" else ("lost", None)
        assert (status["state"], status["exit_status"]) == expected
        until(lambda: not _runs(jobs), "the end of the runner")


def test_processes_that_a_failed_command_left_behind_are_stopped_before_its_retry(
    jobs: Jobs,
) -> None:
    here = jobs.directory
    (here / "train.sh").write_text(
        "exec 9> lock; flock -n 9 || exit 4\n"  # all processes of the script hold it
        "test -e second && exit 0\n"
        "(trap '' TERM; exec sleep 600) &\n"
        "touch second; exit 3\n"
    )
    (here / "train.job.yaml").write_text(
        "command: [bash, train.sh]\ncwd: .\nretries: {failed: 1, lost: 0}\n"
    )
    handle = jobs.submit(str(here / "train.job.yaml"))
    assert jobs.wait(handle) == 0
    assert jobs.status(handle)["restarts"] == 1


def test_a_job_that_was_canceled_before_its_supervisor_began_never_runs(jobs: Jobs) -> None:
    ran = jobs.directory / "ran"
    jobs.paths.create()
    with Store(jobs.paths.store) as store:
        spec = JobSpec(command=("touch", str(ran)))
        handle = store.add_job(Job.create(spec, now=0.0), dict(os.environ), WorkEstimate())
        with create_lock(jobs.paths.start(1, 1)) as lock:
            start = store.add_start(store.job(handle), gpus=1)
            assert start is not None
            assert store.update_job(store.job(handle), cancel_requested=1.0)
            spawn_supervisor(jobs.paths, start, lock)
        until(lambda: not is_alive(jobs.paths.start(1, 1), start), "the end of the supervisor")
        stored = store.job(handle).start
        assert stored is not None
        assert stored.outcome == "stopped"
    assert jobs.state(str(handle)) == "cancelled"
    assert not ran.exists()


@pytest.mark.parametrize(
    "report",
    [
        {"samples": 1_000_000, "seconds": 1, "number": 1, "total": 10**12},
        {"samples": 1e15, "seconds": 1e-12},
        {"samples": 1e-12, "seconds": 1e15, "number": 1, "total": 10**15},
        {"samples": 1e15, "seconds": 1e-12, "number": 0, "total": 10**15, "gpus": 200_000},
    ],
)
def test_a_job_that_reports_extreme_numbers_delays_no_other_job(
    jobs: Jobs, report: dict[str, float]
) -> None:
    line = MARKER + json.dumps({"steps": 1, **report})
    bad = jobs.submit("--gpus", "1..2", "--", "sh", "-c", f"echo '{line}'; exec sleep 600")
    until(lambda: MARKER in jobs.logs(bad), "the report")
    other = jobs.submit("--", "true")
    assert jobs.wait(other) == 0
    large = jobs.submit("--gpus", str(GPUS), "--", "true")
    until(lambda: large in jobs.cli("who").stdout, "the announcement of a job that waits")
    for question in (["queue"], ["status", bad], ["queue", "explain", large]):
        done = jobs.cli(*question)
        assert (done.returncode, done.stderr) == (0, "")
    jobs.cli("cancel", bad)
    assert jobs.wait(large) == 0


def test_a_job_that_cannot_be_announced_delays_no_other_job(jobs: Jobs) -> None:
    jobs.paths.create()
    spec = JobSpec.model_validate({"command": ["true"], "gpus": "1..3"})
    damaged = WorkEstimate(Curve(np.array([0.0, 1.0, np.nan, 1.0])), 1.0)
    with Store(jobs.paths.store) as store:
        handle = store.add_job(Job.create(spec, now=0.0), dict(os.environ), damaged)
    assert jobs.wait(jobs.submit("--", "true")) == 0
    assert "finite" in jobs.status(str(handle))["reason"]


def _runs(jobs: Jobs) -> bool:
    return not is_gone(jobs.runner())
