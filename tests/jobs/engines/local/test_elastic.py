"""A running job that can checkpoint grows when GPUs become free, and continues where it was."""

import json
import sys
from pathlib import Path

import pytest

from gpuyard.jobs.engines.local.store import Store
from gpuyard.share.setup import set_up
from tests.jobs.engines.local.conftest import GPUS, Jobs, until

# Counts steps. On SIGTERM it saves its step, and the next start continues there.
TRAINER = """
import json, os, pathlib, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
kept = pathlib.Path("step")
step = int(kept.read_text()) if kept.exists() else 0
gpus = int(os.environ["GPUYARD_GPUS"])
while not pathlib.Path("may-end").exists():
    step += 1
    print(step, gpus, flush=True)
    report = {"steps": 1, "samples": gpus, "seconds": 0.1, "gpus": gpus, "start": str(os.getpid()), "at": time.time()}
    with open(os.environ["GPUYARD_STEPS"], "a") as steps:
        steps.write("gpuyard-steps: " + json.dumps(report) + "\\n")
    time.sleep(0.1)
    if stop:
        kept.write_text(str(step))
        sys.exit(143)
"""


@pytest.fixture
def elastic(jobs: Jobs, home: Path) -> Path:
    """Set up GPUs of the catalog and a policy that resizes jobs, and write the file of an elastic job."""
    set_up(home / "share", fake_gpus=GPUS, topology="workstation", grace_seconds=0.5)
    assert jobs.cli("queue", "policy", "min-time", "--every", "500 ms").returncode == 0
    (jobs.directory / "trainer.py").write_text(TRAINER)
    file = jobs.directory / "train.job.yaml"
    file.write_text(
        f"command: [{sys.executable}, trainer.py]\ncwd: .\nworkload: resnet50\nsamples: 1000000000\n"
        "gpus: 1..4\ncheckpoint: {directory: ., time: 60 s, restart: 1 s}\n"
    )
    return file


def read_steps(jobs: Jobs, handle: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in jobs.logs(handle).splitlines()]
    return [(int(step), int(gpus)) for step, gpus in lines]


def test_a_job_grows_when_gpus_become_free_and_no_step_is_lost_or_repeated(
    jobs: Jobs, elastic: Path
) -> None:
    hold = jobs.submit("--gpus", "3", "--", "sleep", "600")
    until(lambda: jobs.state(hold) == "running")
    handle = jobs.submit(str(elastic))
    until(lambda: (3, 1) in read_steps(jobs, handle), "steps on one GPU")
    assert jobs.cli("cancel", hold).returncode == 0
    until(lambda: any(gpus == 4 for _, gpus in read_steps(jobs, handle)), "steps on four GPUs")
    (jobs.directory / "may-end").touch()
    assert jobs.wait(handle) == 0
    status = jobs.status(handle)
    assert (status["restarts"], status["gpus"], status["exit_status"]) == (1, 4, 0)
    done = read_steps(jobs, handle)
    assert [step for step, _ in done] == list(range(1, len(done) + 1))
    assert {gpus for _, gpus in done} == {1, 4}
    until(lambda: _measured_gpus(jobs) == [1, 4], "the measurements of both starts")


def _measured_gpus(jobs: Jobs) -> list[int]:
    done = jobs.cli("results", "list", "--kind", "job", "--json")
    runs = json.loads(done.stdout) if done.returncode == 0 else []
    return sorted(run["gpus"] for run in runs)


def test_a_job_makes_room_for_a_short_one(jobs: Jobs, elastic: Path) -> None:
    handle = jobs.submit(str(elastic))
    until(lambda: (3, 4) in read_steps(jobs, handle), "steps on four GPUs")
    short = jobs.directory / "short.job.yaml"
    short.write_text(
        "command: [sh, -c, 'echo $GPUYARD_GPUS']\nworkload: resnet50\nsamples: 100\ngpus: 2\n"
    )
    short_handle = jobs.submit(str(short))
    assert jobs.wait(short_handle) == 0
    assert jobs.logs(short_handle) == "2\n"
    until(lambda: jobs.status(handle)["restarts"] >= 1, "the restart")
    (jobs.directory / "may-end").touch()
    assert jobs.wait(handle) == 0
    done = [step for step, _ in read_steps(jobs, handle)]
    assert done == list(range(1, len(done) + 1))


def test_the_checkpoint_command_runs_before_the_job_is_stopped(jobs: Jobs, elastic: Path) -> None:
    text = elastic.read_text().replace(
        "{directory: .,", "{command: [sh, -c, 'echo $GPUYARD_GPUS > saved'], signal: SIGUSR1,"
    )
    elastic.write_text(text)
    trainer = jobs.directory / "trainer.py"
    trainer.write_text(trainer.read_text().replace("SIGTERM", "SIGUSR1"))
    handle = jobs.submit(str(elastic))
    until(lambda: (3, 4) in read_steps(jobs, handle), "steps")
    with Store(jobs.paths.store) as store:
        (job,) = store.open_jobs()
        assert store.update_job(job, stop_reason="was stopped for a test")
    until(lambda: jobs.status(handle)["restarts"] == 1, "the restart")
    assert (jobs.directory / "saved").read_text() == "4\n"
    (jobs.directory / "may-end").touch()
    assert jobs.wait(handle) == 0
    done = [step for step, _ in read_steps(jobs, handle)]
    assert done == list(range(1, len(done) + 1))


def test_a_job_that_finishes_before_it_is_told_to_stop_does_not_run_again(
    jobs: Jobs, elastic: Path
) -> None:
    """Its checkpoint may take minutes, and the command may end meanwhile."""
    command = "{command: [sh, -c, 'touch may-end; until test -e over; do sleep 0.1; done'],"
    elastic.write_text(elastic.read_text().replace("{directory: .,", command))
    handle = jobs.submit(str(elastic))
    until(lambda: read_steps(jobs, handle), "steps")
    with Store(jobs.paths.store) as store:
        (job,) = store.open_jobs()
        assert store.update_job(job, stop_reason="was stopped for a test")
    try:
        assert jobs.wait(handle) == 0
        assert jobs.status(handle)["restarts"] == 0
    finally:
        (jobs.directory / "over").touch()


def test_the_status_of_a_running_job_shows_its_progress(jobs: Jobs, elastic: Path) -> None:
    handle = jobs.submit(str(elastic))
    until(lambda: (jobs.status(handle)["done"] or 0) > 0, "a report")
    status = jobs.status(handle)
    assert 0 < status["done"] < 1
    assert status["samples_per_second"] > 0
    assert status["expected_end"] > status["started"]
    (jobs.directory / "may-end").touch()
    assert jobs.wait(handle) == 0
