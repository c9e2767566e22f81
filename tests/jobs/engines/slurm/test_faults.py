"""A Slurm that breaks: no job is lost, none runs twice at once, and an unknown state is reported as unknown."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import choose_engine
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from tests.conftest import Cli
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard, until
from tests.slurm_cluster import slurm_cluster


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """A separate cluster, whose daemons the test kills."""
    with slurm_cluster(4, FAST) as slurm, create_yard(slurm, tmp_path, monkeypatch) as yard:
        yield yard


def kill_controller(yard: Yard) -> None:
    yard.slurm.find_daemon("slurmctld", "-D").kill()


def start_controller(yard: Yard) -> None:
    assert yard.slurm.run("slurmctld").returncode == 0


class SavedState:
    """A copy of the controller's saved state.

    Slurm saves a change at once or up to 5 s later. A killed controller that finds an older copy behaves as if it had
    been killed before it saved the rest.
    """

    def __init__(self, yard: Yard, *handles: Handle) -> None:
        self._state = yard.slurm.configuration.parent / "state"
        self._copy = yard.slurm.configuration.parent / "state-before"
        uuids = [records.find(handle)[0].job.uuid.encode() for handle in handles]
        until(lambda: self._has(uuids), lambda: f"Slurm has saved {handles}")
        controller = yard.slurm.find_daemon("slurmctld", "-D")
        controller.suspend()
        shutil.copytree(self._state, self._copy)
        controller.resume()

    def _has(self, uuids: list[bytes]) -> bool:
        saved = self._state / "job_state"
        content = saved.read_bytes() if saved.exists() else b""
        return all(uuid in content for uuid in uuids)

    def restore(self) -> None:
        shutil.rmtree(self._state)
        self._copy.rename(self._state)


def test_a_job_that_slurm_lost_is_submitted_again_once(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = faulty.submit("sh", "-c", "exec sleep 300", gpus=16, nodes=4)
    faulty.until(blocker, "running")
    kept = faulty.submit("true")
    saved = SavedState(faulty, blocker, kept)
    handle = faulty.submit("sh", "-c", "echo run >> ran")
    kill_controller(faulty)
    saved.restore()
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 1.0)
    unknown = faulty.status(handle)
    assert (unknown.state, faulty.status(blocker).state) == ("unknown", "unknown")
    assert "scontrol ping" in unknown.reason
    with pytest.raises(GpuyardError, match="scontrol ping"):
        faulty.submit("true")
    with pytest.raises(GpuyardError, match="scontrol ping"):
        faulty.engine.cancel(blocker)
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
    start_controller(faulty)
    assert (faulty.status(blocker).state, faulty.status(kept).state) == ("running", "queued")

    other = faulty.submit("true")  # Slurm reuses the number.
    status = faulty.status(handle)
    assert (status.state, "submitted again" in status.reason) == ("queued", True)
    assert other != handle, "two jobs have the same handle"
    assert (faulty.status(handle).state, faulty.status(other).state) == ("queued", "queued")
    for job in (other, kept, blocker):
        faulty.engine.cancel(job)
        assert faulty.wait(job).state == "cancelled"
    assert faulty.wait(handle).state == "succeeded"
    assert faulty.read_file("ran") == "run\n"
    assert len(records.find(handle)[0].submissions) == 2


@pytest.mark.soak
def test_a_running_job_that_slurm_lost_runs_again_and_never_twice_at_once(faulty: Yard) -> None:
    alone = ("flock", "--nonblock", "one.lock", "sh", "-c")
    saved = SavedState(faulty)
    handle = faulty.submit(*alone, "echo run >> ran; until test -e go; do sleep 0.1; done")
    faulty.read_file("ran")
    kill_controller(faulty)
    saved.restore()
    start_controller(faulty)
    assert faulty.until(handle, "queued", "running").restarts == 0
    until(lambda: faulty.read_file("ran") == "run\nrun\n", lambda: "it runs again")
    (faulty.directory / "go").touch()
    status = faulty.wait(handle)
    assert (status.state, status.restarts, len(status.logs)) == ("succeeded", 1, 2)


def test_a_finished_job_is_known_by_its_own_file_and_does_not_run_again(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = faulty.submit("sh", "-c", "echo run >> ran")
    directory = records.find(handle)[0].directory
    until(lambda: "succeeded" in _read_starts(directory), lambda: "it has finished")
    kill_controller(faulty)
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 1.0)
    assert faulty.status(handle).state == "succeeded"
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
    start_controller(faulty)
    assert faulty.status(handle).state == "succeeded"
    # The same job once more, as if Slurm had not lost it after all.
    record = records.find(handle)[0]
    number = client.submit(str(record.script), record.read_environment())
    messages = directory / f"slurm-{number}.out"
    until(lambda: messages.exists() and messages.read_text(), lambda: "the second has finished")
    assert "already succeeded" in messages.read_text()
    assert faulty.read_file("ran") == "run\n"


def test_jobs_are_unknown_and_never_lost_while_slurm_does_not_answer(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    handle = faulty.submit("sh", "-c", "echo run >> ran; until test -e go; do sleep 0.1; done")
    faulty.read_file("ran")
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 1.0)
    controller = faulty.slurm.find_daemon("slurmctld", "-D")
    controller.suspend()
    status = faulty.status(handle)
    assert (status.state, status.exit_status, status.nodes) == ("unknown", None, ("node1",))
    assert "1 s" in status.reason and "scontrol ping" in status.reason
    assert [listed.state for listed in faulty.engine.list()] == ["unknown"]
    availability = faulty.engine.available()
    assert (availability.ok, availability.down) == (False, True)
    with pytest.raises(GpuyardError, match="scontrol ping"):
        choose_engine()  # It does not fall back to this machine.
    listed = cli("queue", "--json")
    assert [job["state"] for job in json.loads(listed.stdout)["jobs"]] == ["unknown"]
    controller.resume()
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
    assert faulty.status(handle).state == "running"
    (faulty.directory / "go").touch()
    assert faulty.wait(handle).state == "succeeded"
    assert (faulty.read_file("ran"), len(records.find(handle)[0].submissions)) == ("run\n", 1)


def _read_starts(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("*-*.json"))
