"""What dies while jobs run, and what is left of it: no job is lost, and none runs twice at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.jobs.engines.local.paths import StartPaths
from gpuyard.jobs.engines.local.start import Order, look, prepared
from gpuyard.jobs.log_files import open_log
from tests.jobs.engines.local.conftest import Jobs, is_gone, until

# notes its pid when it starts; a second one at the same time finds the first one's mark; ends when it may
ALONE = """
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


def alone(directory: Path) -> tuple[str, ...]:
    (directory / "alone.py").write_text(ALONE)
    return (sys.executable, str(directory / "alone.py"), str(directory))


def pids(directory: Path) -> list[int]:
    file = directory / "starts"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_job_outlives_its_killed_runner_and_is_adopted_by_the_next(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--", *alone(here))
    until(lambda: pids(here), "the job's start")
    first = jobs.kill_runner()
    assert not is_gone(pids(here)[0])
    assert jobs.state(handle) == "running"  # asking has started another runner
    second = until(lambda: jobs.paths.runner_lock.read_text().strip(), "another runner")
    assert int(second) != first
    (here / "may-end").touch()
    assert jobs.wait(handle) == 0
    assert len(pids(here)) == 1
    status = jobs.status(handle)
    assert (status["restarts"], status["exit_status"]) == (0, 0)
    assert jobs.logs(handle) == f"start {pids(here)[0]}\nend\n"


def test_a_job_that_ends_while_there_is_no_runner_is_known_to_have_ended(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--", *alone(here))
    until(lambda: pids(here), "the job's start")
    supervisor = jobs.supervisor(handle)
    jobs.kill_runner()
    (here / "may-end").touch()
    until(lambda: is_gone(supervisor), "its end")
    assert jobs.state(handle) == "succeeded"


def test_jobs_that_waited_for_a_dead_runner_go_on_when_somebody_looks(jobs: Jobs) -> None:
    here = jobs.directory
    first = jobs.submit("--gpus", "4", "--", *alone(here))
    until(lambda: pids(here), "the job's start")
    second = jobs.submit("--gpus", "4", "--", "true")
    jobs.kill_runner()
    (here / "may-end").touch()
    assert '"local://2"' in jobs.cli("queue", "--json").stdout
    assert jobs.wait(first, second) == 0
    assert jobs.status(second)["restarts"] == 0


@pytest.mark.parametrize("it_has", ["both", "its lock", "its environment"])
def test_a_killed_supervisor_leaves_the_job_running_and_it_starts_again_only_after_its_end(
    jobs: Jobs, it_has: str
) -> None:
    here = jobs.directory
    command = alone(here)
    if it_has == "its lock":
        command = ("env", "-i", *command)
    elif it_has == "its environment":
        (here / "alone.py").write_text(f"import os\nos.closerange(3, 256)\n{ALONE}")
    handle = jobs.submit("--", *command)
    until(lambda: pids(here), "the job's start")
    kill(jobs.supervisor(handle))
    for _ in range(3):
        assert jobs.state(handle) == "running"
    assert len(pids(here)) == 1
    (here / "may-end").touch()
    assert jobs.wait(handle) == 0
    status = jobs.status(handle)
    assert len(pids(here)) == 2
    assert status["restarts"] == 1  # nobody knows how the first one ended
    assert len(status["logs"]) == 2
    assert jobs.logs(handle) == "".join(f"start {pid}\nend\n" for pid in pids(here))


def test_a_job_that_was_lost_starts_again_as_often_as_it_may(jobs: Jobs) -> None:
    here = jobs.directory
    handle = jobs.submit("--retries", "1", "--", *alone(here))
    for number in (1, 2):
        until(lambda: len(pids(here)) == number, "a start")  # noqa: B023
        kill(jobs.supervisor(handle), pids(here)[-1])
        (here / "runs").rmdir()
        if number == 1:
            until(lambda: jobs.status(handle)["restarts"] == 1, "the restart")
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["restarts"], status["exit_status"]) == ("lost", 1, None)


def test_a_job_that_fails_is_not_retried_like_one_that_was_lost(jobs: Jobs) -> None:
    count = 'echo x >> count; exit "$(wc -l < count)"'
    handle = jobs.submit("--retries", "5", "--cwd", str(jobs.directory), "--", "sh", "-c", count)
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("failed", 1, 0)


def test_a_job_that_fails_is_retried_where_its_file_says_so(jobs: Jobs) -> None:
    (jobs.directory / "train.job.yaml").write_text(
        "command: [sh, -c, 'echo x >> count; test \"$(wc -l < count)\" = 3']\ncwd: .\n"
        "retries: {failed: 2}\n"
    )
    handle = jobs.submit(str(jobs.directory / "train.job.yaml"))
    assert jobs.wait(handle) == 0
    assert (jobs.status(handle)["restarts"], jobs.status(handle)["exit_status"]) == (2, 0)


def test_many_submissions_at_once_have_one_runner_and_each_job_runs_once(jobs: Jobs) -> None:
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


def test_a_runner_that_cannot_be_started_is_said_and_nothing_is_queued(jobs: Jobs) -> None:
    first = jobs.submit("--", "true")
    assert jobs.wait(first) == 0
    until(lambda: not _runs(jobs), "the runner's end")  # it has nothing to do
    jobs.paths.runner_log.unlink()
    jobs.paths.runner_log.symlink_to("/etc/passwd")
    done = jobs.cli("submit", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert "runner can't be started" in done.stderr
    assert '"local://2"' not in jobs.cli("queue", "--json", "--all").stdout


def test_a_job_that_waits_says_that_its_runner_cannot_be_started(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--", "true")
    jobs.kill_runner()
    jobs.paths.runner_log.unlink()
    jobs.paths.runner_log.symlink_to("/etc/passwd")
    assert "runner can't be started" in jobs.status(handle)["reason"]
    jobs.paths.runner_log.unlink()
    jobs.cli("cancel", hold)
    assert jobs.wait(handle) == 0


def test_what_a_runner_left_that_was_killed_while_it_started_a_job_is_no_obstacle(
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


def test_a_start_has_not_begun_where_the_runner_was_killed_before_a_supervisor_came(
    tmp_path: Path,
) -> None:
    start = StartPaths(tmp_path / "2" / "1")
    start.directory.parent.mkdir()
    order = Order(("true",), {}, "/", gpus=1, seconds=None, project="", title="true")
    with prepared(start, order):
        os.close(open_log(start.supervisor_log))  # the runner's last act before it starts one
        assert look(start).alive
    assert (look(start).alive, look(start).began) == (False, False)
    os.close(open_log(start.log))  # the supervisor's first act
    assert look(start).began


def test_a_supervisor_that_cannot_do_its_work_says_why(jobs: Jobs) -> None:
    hold = jobs.submit("--gpus", "4", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit("--retries", "0", "--", *alone(jobs.directory))
    jobs.cli("cancel", hold)
    until(lambda: pids(jobs.directory), "the job's start")
    jobs.paths.start(2, 1).supervisor_log.write_text("Traceback\nNo such thing\n\n")
    kill(jobs.supervisor(handle), *pids(jobs.directory))
    assert jobs.wait(handle) == 1
    status = jobs.status(handle)
    assert (status["state"], status["reason"]) == ("lost", "No such thing")


def _runs(jobs: Jobs) -> bool:
    return not is_gone(jobs.runner())
