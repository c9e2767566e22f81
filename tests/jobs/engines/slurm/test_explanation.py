"""The expected end of a Slurm job and its chance to meet the deadline never contradict each other."""

from dataclasses import asdict, replace
from pathlib import Path
from uuid import UUID

import pytest

from gpuyard.jobs.engines.slurm.explanation import explain_job
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.sizing import SpeedEstimate
from gpuyard.jobs.explain import Explanation
from gpuyard.jobs.job import Job, JobStatus
from gpuyard.specs.job import JobSpec

HOUR = 3600.0
NOW = 1.79e9
# Ten hours at the predicted speed.
SPEED = SpeedEstimate(1000.0, 0.7, 1.3, 10 * HOUR * 1000.0, "fifo", "")


def explain(
    deadline_hours: float,
    speed: SpeedEstimate | None = SPEED,
    *,
    runs_for_hours: float | None = None,
    expected_in_hours: float | None = None,
) -> Explanation:
    spec = JobSpec(command=("true",))
    job = Job(str(UUID(int=0)), spec, Path("/"), NOW, deadline=NOW + deadline_hours * HOUR)
    predicted = None if speed is None else asdict(speed)
    record = SlurmRecord(
        job.document(), "here", 1, 1, None, handle_id="here/1", speed_document=predicted
    )
    status = JobStatus(record.handle, "queued", deadline=job.deadline)
    if runs_for_hours is not None:
        status = replace(
            status, state="running", gpus=1, nodes=("node1",), started=NOW - runs_for_hours * HOUR
        )
    if expected_in_hours is not None:
        status = replace(status, expected_end=NOW + expected_in_hours * HOUR)
    return explain_job(record, status, NOW, NOW)


@pytest.mark.parametrize("expected_in_hours", [1.0, 12.0, 100.0])
def test_a_measured_end_after_the_deadline_makes_meeting_it_unlikely(
    expected_in_hours: float,
) -> None:
    """The job runs far slower than predicted; its prediction alone would meet the deadline."""
    late = explain(expected_in_hours / 2, runs_for_hours=11.0, expected_in_hours=expected_in_hours)
    assert late.end is not None
    assert late.end.expected_s == pytest.approx(NOW + expected_in_hours * HOUR)
    assert late.end.low_s is not None
    assert late.end.high_s is not None
    assert late.end.low_s < late.end.expected_s < late.end.high_s
    assert late.deadline_probability is not None
    assert late.deadline_probability < 0.01
    early = explain(expected_in_hours * 2, runs_for_hours=11.0, expected_in_hours=expected_in_hours)
    assert early.deadline_probability is not None
    assert early.deadline_probability > 0.99


@pytest.mark.parametrize("deadline_hours", [5, 9, 10, 11, 20])
def test_the_chance_follows_from_the_same_prediction_as_the_end(deadline_hours: float) -> None:
    planned = explain(deadline_hours)
    assert planned.end is not None
    assert planned.end.expected_s == pytest.approx(NOW + 10 * HOUR)
    assert planned.deadline_probability is not None
    assert (planned.deadline_probability > 0.5) == (deadline_hours > 10)


def test_a_job_past_its_whole_predicted_interval_gets_no_end_and_no_promise() -> None:
    longer = explain(1.0, runs_for_hours=30.0)
    assert (longer.end, longer.deadline_probability) == (None, None)
    assert not any("deadline" in sentence for sentence in longer.prospects)
    within = explain(1.0, runs_for_hours=11.0)
    assert within.deadline_probability is not None
    assert 0 < within.deadline_probability < 0.9


def test_a_job_of_unknown_length_gets_no_promise() -> None:
    for speed in (None, replace(SPEED, samples=None)):
        unknown = explain(1000.0, speed)
        assert (unknown.end, unknown.deadline_probability) == (None, None)
    past = explain(-1.0, runs_for_hours=1.0)
    assert past.deadline_probability == 0.0
