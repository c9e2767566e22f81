"""A Slurm that breaks: no job is lost, none runs twice at once, and what is not known is said to be so."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import choose_engine
from gpuyard.jobs.engines.slurm import commands, records
from gpuyard.jobs.job import Handle
from tests.conftest import Cli
from tests.jobs.engines.slurm.conftest import SOON, Yard, a_yard, until
from tests.slurm_cluster import slurm_cluster


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """A cluster of its own, whose parts the test kills."""
    with slurm_cluster(4, SOON) as slurm, a_yard(slurm, tmp_path, monkeypatch) as yard:
        yield yard


def kill_controller(yard: Yard) -> None:
    yard.slurm.daemon("slurmctld", "-D").kill()


def start_controller(yard: Yard) -> None:
    assert yard.slurm.run("slurmctld").returncode == 0


class Written:
    """What Slurm had written when this was made. It writes a change at once or up to 5 s later, as it likes; a
    controller that was killed and finds only this is one that was killed before it wrote the rest."""

    def __init__(self, yard: Yard, *handles: Handle) -> None:
        self._state = yard.slurm.configuration.parent / "state"
        self._copy = yard.slurm.configuration.parent / "state-before"
        uuids = [records.find(handle)[0].job.uuid.encode() for handle in handles]
        until(lambda: self._has(uuids), lambda: f"Slurm has written {handles}")
        controller = yard.slurm.daemon("slurmctld", "-D")
        controller.suspend()
        shutil.copytree(self._state, self._copy)
        controller.resume()

    def _has(self, uuids: list[bytes]) -> bool:
        written = self._state / "job_state"
        text = written.read_bytes() if written.exists() else b""
        return all(uuid in text for uuid in uuids)

    def restore(self) -> None:
        shutil.rmtree(self._state)
        self._copy.rename(self._state)


def test_a_job_that_slurm_lost_with_its_controller_is_submitted_again_once(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = faulty.submit("sh", "-c", "exec sleep 300", gpus=16, nodes=4)
    faulty.until(blocker, "running")
    kept = faulty.submit("true")
    written = Written(faulty, blocker, kept)
    handle = faulty.submit("sh", "-c", "echo run >> ran")
    kill_controller(faulty)
    written.restore()
    monkeypatch.setattr(commands, "_ASK_SECONDS", 1.0)
    unknown = faulty.status(handle)
    assert (unknown.state, faulty.status(blocker).state) == ("unknown", "unknown")
    assert "scontrol ping" in unknown.reason
    with pytest.raises(GpuyardError, match="answer"):
        faulty.submit("true")
    with pytest.raises(GpuyardError, match="answer"):
        faulty.engine.cancel(blocker)
    monkeypatch.setattr(commands, "_ASK_SECONDS", 60.0)
    start_controller(faulty)
    assert (faulty.status(blocker).state, faulty.status(kept).state) == ("running", "queued")

    other = faulty.submit("true")  # Slurm counts from before
    status = faulty.status(handle)
    assert (status.state, status.reason) == (
        "queued",
        "Slurm had lost it, so it was submitted again",
    )
    assert other != handle, "two jobs have one handle"
    assert (faulty.status(handle).state, faulty.status(other).state) == ("queued", "queued")
    for one in (other, kept, blocker):
        faulty.engine.cancel(one)
        assert faulty.ended(one).state == "cancelled"
    assert faulty.ended(handle).state == "succeeded"
    assert faulty.file("ran") == "run\n"
    assert len(records.find(handle)[0].submissions) == 2


@pytest.mark.soak
def test_a_job_that_ran_when_slurm_lost_it_runs_again_and_never_twice_at_once(faulty: Yard) -> None:
    alone = ("flock", "--nonblock", "one.lock", "sh", "-c")
    written = Written(faulty)
    handle = faulty.submit(*alone, "echo run >> ran; until test -e go; do sleep 0.1; done")
    faulty.file("ran")
    kill_controller(faulty)
    written.restore()
    start_controller(faulty)
    assert faulty.until(handle, "queued", "running").restarts == 0
    until(lambda: faulty.file("ran") == "run\nrun\n", lambda: "it runs again")
    (faulty.directory / "go").touch()
    status = faulty.ended(handle)
    assert (status.state, status.restarts, len(status.logs)) == ("succeeded", 1, 2)


def test_a_job_that_ended_is_known_by_its_own_file_and_not_run_again(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = faulty.submit("sh", "-c", "echo run >> ran")
    directory = records.find(handle)[0].directory
    until(lambda: "succeeded" in _kept(directory), lambda: "it has ended")
    kill_controller(faulty)
    monkeypatch.setattr(commands, "_ASK_SECONDS", 1.0)
    assert faulty.status(handle).state == "succeeded"
    monkeypatch.setattr(commands, "_ASK_SECONDS", 60.0)
    start_controller(faulty)
    assert faulty.status(handle).state == "succeeded"
    # the same job once more, as if Slurm had not lost it after all
    record = records.find(handle)[0]
    number = commands.sbatch(str(record.script), record.environment())
    messages = directory / f"slurm-{number}.out"
    until(lambda: messages.exists() and messages.read_text(), lambda: "the second one has ended")
    assert "has succeeded already" in messages.read_text()
    assert faulty.file("ran") == "run\n"


def test_slurm_that_says_nothing_makes_jobs_unknown_and_never_lost(
    faulty: Yard, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    handle = faulty.submit("sh", "-c", "echo run >> ran; until test -e go; do sleep 0.1; done")
    faulty.file("ran")
    monkeypatch.setattr(commands, "_ASK_SECONDS", 1.0)
    controller = faulty.slurm.daemon("slurmctld", "-D")
    controller.suspend()
    status = faulty.status(handle)
    assert (status.state, status.exit_status, status.nodes) == ("unknown", None, ("node1",))
    assert "has not answered for 1 s" in status.reason
    assert [one.state for one in faulty.engine.list()] == ["unknown"]
    found = faulty.engine.available()
    assert (found.ok, found.down) == (False, True)
    with pytest.raises(GpuyardError, match="set up here, and can't be used now"):
        choose_engine()  # it does not go to this machine instead
    listed = cli("queue", "--json")
    assert [job["state"] for job in json.loads(listed.stdout)["jobs"]] == ["unknown"]
    controller.resume()
    monkeypatch.setattr(commands, "_ASK_SECONDS", 60.0)
    assert faulty.status(handle).state == "running"
    (faulty.directory / "go").touch()
    assert faulty.ended(handle).state == "succeeded"
    assert (faulty.file("ran"), len(records.find(handle)[0].submissions)) == ("run\n", 1)


def _kept(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("*-*.json"))
