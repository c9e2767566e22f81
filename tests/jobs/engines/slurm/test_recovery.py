"""What a job recorded itself counts more than what Slurm says, and what Slurm killed is submitted again."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records, recovery
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from gpuyard.slurm.jobs import SlurmJob, list_jobs
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard, until
from tests.slurm_cluster import slurm_cluster

PROLOG = """\
#!/bin/sh
test ! -e "$0.fail"
"""


@pytest.fixture(autouse=True)
def settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is requeued by Slurm after it has ended."""
    monkeypatch.setattr(recovery, "_SETTLE_SECONDS", 0.0)


def number_of(handle: Handle) -> str:
    return str(records.find(handle)[0].submissions[-1].number)


def own_jobs(handle: Handle) -> list[SlurmJob]:
    comment = records.find(handle)[0].comment
    return [job for job in list_jobs() if job.comment == comment]


def slurm_states(handle: Handle) -> list[str]:
    return [job.slurm_state for job in own_jobs(handle)]


def until_requeued(handle: Handle, condition: Callable[[], object]) -> None:
    """Wait for a requeued job, which Slurm would let wait for two minutes."""

    def check() -> object:
        with suppress(GpuyardError):  # It runs or has ended.
            client.run("scontrol", "update", f"JobId={number_of(handle)}", "StartTime=now")
        return condition()

    until(check, lambda: f"it ran again: {own_jobs(handle)}", seconds=0.5)


@pytest.mark.parametrize(
    ("exit_status", "state", "message"),
    [(0, "succeeded", "already succeeded"), (3, "failed", "already failed")],
)
def test_a_finished_job_that_slurm_requeues_does_not_run_again(
    yard: Yard, exit_status: int, state: str, message: str
) -> None:
    handle = yard.submit("sh", "-c", f"echo run >> ran; exit {exit_status}")
    until(lambda: slurm_states(handle) in (["COMPLETED"], ["FAILED"]), lambda: "Slurm has ended it")
    messages = records.find(handle)[0].directory / f"slurm-{number_of(handle)}.out"

    def runs_again() -> bool:
        with suppress(GpuyardError):  # It waits or runs; Slurm may also fail to start it.
            if all(job.is_final for job in own_jobs(handle)):
                client.run("scontrol", "requeue", number_of(handle))
        return message in messages.read_text()

    until_requeued(handle, runs_again)
    status = yard.status(handle)
    assert (status.state, status.exit_status, status.restarts) == (state, exit_status, 0)
    assert yard.read_file("ran") == "run\n"


def test_a_recorded_success_counts_while_slurm_holds_the_job_and_leaves_nothing_in_its_queue(
    yard: Yard,
) -> None:
    first, second = (yard.submit("sh", "-c", "echo run >> ran") for _ in range(2))
    for handle in (first, second):
        until(lambda: slurm_states(handle) == ["COMPLETED"], lambda: "Slurm has ended it")  # noqa: B023
    assert yard.status(second).state == "succeeded"  # The engine keeps this result.
    for handle in (first, second):
        client.run("scontrol", "requeuehold", number_of(handle))
        until(lambda: slurm_states(handle) == ["PENDING"], lambda: "Slurm holds it")  # noqa: B023
    assert [status.state for status in yard.engine.list()] == ["succeeded", "succeeded"]
    for handle in (first, second):
        until(lambda: slurm_states(handle) == ["CANCELLED"], lambda: "it is not queued")  # noqa: B023
        assert yard.status(handle).state == "succeeded"
    assert yard.read_file("ran") == "run\nrun\n"


def test_a_job_whose_script_was_killed_is_submitted_again_as_often_as_allowed(yard: Yard) -> None:
    """A command that fails is not the same as a job that Slurm kills."""
    script = "echo run >> ran; test $(wc -l < ran) = 2 || { echo $PPID > script; exec sleep 300; }"
    handle = yard.submit("sh", "-c", script)
    kill_script(yard)
    status = yard.wait(handle)
    assert (status.state, status.exit_status, status.restarts) == ("succeeded", 0, 1), status.reason
    assert yard.read_file("ran") == "run\nrun\n"
    never = yard.submit("sh", "-c", "echo $PPID > script; exec sleep 300", retries={"lost": 0})
    kill_script(yard)
    status = yard.wait(never)
    assert (status.state, status.exit_status) == ("lost", None)
    assert "FAILED" in status.reason and "gpuyard retry" in status.reason


def kill_script(yard: Yard) -> None:
    pid = yard.read_file("script").strip()
    (yard.directory / "script").unlink()
    assert yard.slurm.run("kill", "-9", pid).returncode == 0


def test_one_task_of_an_array_is_submitted_again(yard: Yard) -> None:
    script = (
        "echo run >> ran-$SLURM_ARRAY_TASK_ID; test $SLURM_ARRAY_TASK_ID = 0 || "
        "test $(wc -l < ran-1) = 2 || { echo $PPID > script; exec sleep 300; }"
    )
    handle = yard.submit("sh", "-c", script, slurm={"array": "0-1"})
    kill_script(yard)
    assert yard.wait(Handle("slurm", f"{handle.id}_1")).state == "succeeded"
    assert yard.wait(handle).state == "succeeded"
    assert (yard.read_file("ran-0"), yard.read_file("ran-1")) == ("run\n", "run\nrun\n")


@pytest.fixture
def with_prolog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """A cluster with a prolog that fails while the file prolog.fail exists."""
    prolog = tmp_path / "prolog"
    prolog.write_text(PROLOG)
    prolog.chmod(0o755)
    settings = f"{FAST}Prolog={prolog}\n"
    with slurm_cluster(3, settings) as slurm, create_yard(slurm, tmp_path, monkeypatch) as yard:
        yield yard


def test_a_job_that_slurm_holds_after_a_failed_launch_is_released_as_often_as_allowed(
    with_prolog: Yard,
) -> None:
    def is_held() -> bool:
        return any(job.is_held_after_launch for job in own_jobs(handle))

    fails = with_prolog.directory.parent / "prolog.fail"
    fails.touch()
    handle = with_prolog.submit("sh", "-c", "echo run >> ran", retries={"lost": 1})
    until(is_held, lambda: str(own_jobs(handle)))
    assert "released" in with_prolog.status(handle).reason
    assert not is_held()
    until_requeued(handle, is_held)  # It fails on another node.
    status = with_prolog.status(handle)
    release = f"scontrol release {number_of(handle)}"
    assert (status.state, release in status.reason) == ("queued", True), status.reason
    assert is_held()
    fails.unlink()
    client.run(*release.split())
    until_requeued(handle, lambda: with_prolog.status(handle).final)
    assert with_prolog.status(handle).state == "succeeded"
    assert with_prolog.read_file("ran") == "run\n"
