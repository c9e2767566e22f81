"""What a job reports in its log: a measurement when it has ended."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gpuyard import files
from gpuyard.jobs import following
from gpuyard.jobs.engines.base import Availability, Engine, Request
from gpuyard.jobs.following import keep_reported, status_with_progress
from gpuyard.jobs.job import Handle, Job, JobState, JobStatus
from gpuyard.measure import ResultsStore
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.report.answer import DefinitionList, Words
from gpuyard.report.answers.jobs.status import status_answer
from gpuyard.specs.job import JobSpec
from gpuyard.steps.reporter import MARKER

HANDLE = Handle("elsewhere", "17")


def lines(count: int, **said: Any) -> str:
    """Of 50 steps and 10 s each."""
    return "".join(
        f"epoch {i}\n[rank0]: {MARKER}"
        + json.dumps(
            {
                "steps": 50,
                "samples": 12_800,
                "seconds": 10,
                "gpus": 4,
                "start": "a",
                "at": 1000 + 10 * i,
            }
            | said
            | {"samples_done": 12_800 * (i + 1)}
        )
        + "\n"
        for i in range(count)
    )


def job(**said: Any) -> Job:
    spec = JobSpec(**{"command": ("train",), "workload": "resnet50", "samples": 128_000, **said})
    return Job.of(spec, now=0.0)


class Elsewhere(Engine):
    """One that has nothing of a job but what it printed."""

    name = "elsewhere"

    def __init__(self, printed: str, submitted: Job, state: JobState = "succeeded") -> None:
        self._printed = printed
        self._job = submitted
        self._state: JobState = state

    def available(self) -> Availability:
        return Availability(ok=True)

    def plan(self, job: Job) -> Request:
        raise NotImplementedError

    def submit(self, request: Any) -> Handle:
        raise NotImplementedError

    def status(self, handle: Handle) -> JobStatus:
        return JobStatus(handle, self._state)

    def list(self) -> Sequence[JobStatus]:
        return []

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        yield from (self._printed[i : i + 7] for i in range(0, len(self._printed), 7))

    def cancel(self, handle: Handle) -> None:
        raise NotImplementedError

    def job(self, handle: Handle) -> Job:
        return self._job


def stored() -> list[JobRun]:
    return ResultsStore(files.results_file()).records(JobRun)


def test_only_a_job_that_names_its_workload_is_told_to_print_reports() -> None:
    assert job().environment(4)["GPUYARD_REPORT"] == "stdout"
    assert "GPUYARD_REPORT" not in job(workload=None).environment(4)
    assert job(env={"GPUYARD_REPORT": "no"}).environment(4)["GPUYARD_REPORT"] == "no"


def test_what_was_printed_is_a_measurement_once() -> None:
    submitted = job()
    engine = Elsewhere(lines(5), submitted)
    for _ in range(2):
        keep_reported(submitted, HANDLE, engine.reports(HANDLE))
    (run,) = stored()
    assert (run.handle, run.job, run.gpus) == ("elsewhere://17", submitted.uuid, 4)
    assert run.samples_per_second == pytest.approx(1280)
    keep_reported(job(workload=None), HANDLE, engine.reports(HANDLE))
    keep_reported(submitted, HANDLE, [])
    assert stored() == [run]


def test_a_job_that_only_prints_has_its_speed_and_expected_end_too() -> None:
    found = status_with_progress(Elsewhere(lines(5), job(gpus=4), "running"), HANDLE)
    assert found.samples_per_second == pytest.approx(1280)
    assert found.done == 0.5
    assert found.expected_end is not None
    for other in (
        Elsewhere(lines(5), job(gpus=4)),
        Elsewhere(lines(5), job(workload=None), "running"),
        Elsewhere("epoch 1\n", job(), "running"),
    ):
        assert status_with_progress(other, HANDLE) == other.status(HANDLE)


def facts_of(status: JobStatus) -> dict[str, Words]:
    (facts,) = status_answer(status).parts
    assert isinstance(facts, DefinitionList)
    return dict(facts.facts)


def test_the_status_says_how_fast_it_is_and_when_it_will_end() -> None:
    status = JobStatus(HANDLE, "running", done=0.42, samples_per_second=1280.0, expected_end=1.79e9)
    said = facts_of(status)
    assert (said["done"], said["samples/s"]) == ("42 %", "1,280.0")
    assert str(said["expected end"]).startswith("Mon 2026-09-21")
    assert "samples/s" not in facts_of(JobStatus(HANDLE, "running"))


def test_waiting_for_a_job_keeps_what_its_engine_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "engine", lambda _: Elsewhere(lines(3), job()))
    following.wait_for([HANDLE])
    assert [run.steps for run in stored()] == [150]
    monkeypatch.setattr(Elsewhere, "keeps_measurements", True)
    monkeypatch.setattr(following, "engine", lambda _: Elsewhere(lines(4), job()))
    following.wait_for([HANDLE])
    assert len(stored()) == 1
