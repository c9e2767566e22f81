"""The records of submitted jobs: a job is found by its number without reading the records of all others."""

import json
import time
import uuid
from dataclasses import replace

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.engine import SlurmEngine
from gpuyard.jobs.engines.slurm.records import SlurmRecord, TaskStatus
from gpuyard.jobs.job import Handle, Job
from gpuyard.specs.job import JobSpec


def write_record(
    *numbers: int,
    cluster: str = "here",
    handle_number: int | None = None,
    ended: float | None = None,
) -> SlurmRecord:
    """Write the record of a job that Slurm gave these numbers."""
    job = Job.create(JobSpec(command=("true",)), now=time.time())
    record = SlurmRecord(job.document(), cluster, 1, 1, None)
    for number in numbers:
        record = record.add_submission(number, 0.0, f"{cluster}/{handle_number or numbers[0]}")
    if ended is not None:
        record = replace(record, result=TaskStatus("succeeded", 0, ended=ended))
    record.directory.mkdir(parents=True)
    record.write()
    return record


def find(handle: str) -> str:
    return records.find(Handle.parse(handle))[0].job.uuid


@pytest.mark.usefixtures("home")
def test_a_job_is_found_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100, 120):
        write_record(number)
    wanted = write_record(17, 18)
    reads: list[str] = []
    read = records.read

    def note(uuid: str) -> SlurmRecord:
        reads.append(uuid)
        return read(uuid)

    monkeypatch.setattr(records, "read", note)
    for name in ("17", "18", wanted.job.uuid):
        assert find(f"slurm://here/{name}") == wanted.job.uuid
    assert SlurmEngine().find_number("17") == [wanted.handle]
    assert set(reads) == {wanted.job.uuid}
    assert SlurmEngine().find_number("18") == [], "its handle has the first number"


@pytest.mark.usefixtures("home")
def test_a_number_belongs_to_the_job_whose_handle_has_it() -> None:
    older, newer = write_record(5, 7), write_record(7)
    elsewhere = write_record(7, cluster="there")
    assert find("slurm://here/7") == newer.job.uuid
    assert find("slurm://there/7") == elsewhere.job.uuid
    assert find("slurm://here/5") == older.job.uuid
    with pytest.raises(UserMistake):
        find("slurm://there/5")
    with pytest.raises(UserMistake):
        find(f"slurm://here/{uuid.uuid4()}")


@pytest.mark.usefixtures("home")
def test_a_damaged_record_is_reported_for_its_number_only() -> None:
    good, bad = write_record(1), write_record(2)
    (bad.directory / "submission.json").write_text(json.dumps({"document": 1}))
    assert find("slurm://here/1") == good.job.uuid
    with pytest.raises(GpuyardError, match="damaged"):
        find("slurm://here/2")


@pytest.mark.usefixtures("home")
def test_a_pruned_job_leaves_nothing() -> None:
    pruned, kept = write_record(3, 4, ended=100.0), write_record(4)
    for number in range(10, 13):
        write_record(number, ended=150.0)
    assert records.prune(200.0, limit=2) == 2
    assert records.prune(200.0) == 2
    assert not pruned.directory.exists()
    assert find("slurm://here/4") == kept.job.uuid
    assert SlurmEngine().find_number("3") == []
    assert [path.name for path in (kept.directory.parent / "numbers").iterdir()] == ["4"]
