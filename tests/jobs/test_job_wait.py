"""Reports in a job's output become progress while it runs and a measurement when it has ended."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuyard import files
from gpuyard.jobs import job_wait
from gpuyard.jobs.engines.base import Availability, Engine, Request
from gpuyard.jobs.job import Handle, Job, JobState, JobStatus
from gpuyard.jobs.job_wait import get_status, store_measurements
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answer import DefinitionList, StyledText
from gpuyard.report.answers.jobs.status import status_answer
from gpuyard.reporting.reporter import MARKER
from gpuyard.specs.job import JobSpec

HANDLE = Handle("elsewhere", "17")


def report_lines(count: int, **fields: Any) -> str:
    """Return output with reports of 50 steps and 10 s each."""
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
            | fields
            | {"samples_done": 12_800 * (i + 1)}
        )
        + "\n"
        for i in range(count)
    )


def create_job(**fields: Any) -> Job:
    spec = JobSpec(**{"command": ("train",), "workload": "resnet50", "samples": 128_000, **fields})
    return Job.create(spec, now=0.0)


class Elsewhere(Engine):
    """An engine that has only the output of a job."""

    name = "elsewhere"

    def __init__(self, output: str, submitted: Job, state: JobState = "succeeded") -> None:
        self._output = output
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

    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        return []

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        yield from (self._output[i : i + 7] for i in range(0, len(self._output), 7))

    def cancel(self, handle: Handle) -> None:
        raise NotImplementedError

    def job(self, handle: Handle) -> Job:
        return self._job


def read_runs() -> list[JobRun]:
    return ResultsStore(files.results_file()).records(JobRun)


def test_only_a_job_with_a_workload_prints_reports() -> None:
    assert create_job().environment(4)["GPUYARD_REPORT"] == "stdout"
    assert "GPUYARD_REPORT" not in create_job(workload=None).environment(4)
    assert create_job(env={"GPUYARD_REPORT": "no"}).environment(4)["GPUYARD_REPORT"] == "no"


def test_reports_are_stored_as_one_measurement() -> None:
    submitted = create_job()
    engine = Elsewhere(report_lines(5), submitted)
    for _ in range(2):
        store_measurements(submitted, HANDLE, engine.reports(HANDLE))
    (run,) = read_runs()
    assert (run.handle, run.job, run.gpus) == ("elsewhere://17", submitted.uuid, 4)
    assert run.samples_per_second == pytest.approx(1280)
    store_measurements(create_job(workload=None), HANDLE, engine.reports(HANDLE))
    store_measurements(submitted, HANDLE, [])
    assert read_runs() == [run]


def test_progress_is_read_from_the_output() -> None:
    status = get_status(Elsewhere(report_lines(5), create_job(gpus=4), "running"), HANDLE)
    assert status.samples_per_second == pytest.approx(1280)
    assert status.done == 0.5
    assert status.expected_end is not None
    for engine in (
        Elsewhere(report_lines(5), create_job(gpus=4)),
        Elsewhere(report_lines(5), create_job(workload=None), "running"),
        Elsewhere("epoch 1\n", create_job(), "running"),
    ):
        assert get_status(engine, HANDLE) == engine.status(HANDLE)


def get_facts(status: JobStatus) -> dict[str, StyledText]:
    (facts,) = status_answer(status).parts
    assert isinstance(facts, DefinitionList)
    return dict(facts.facts)


def test_the_status_shows_speed_and_expected_end() -> None:
    known = JobStatus(HANDLE, "running", done=0.42, samples_per_second=1280.0, expected_end=1.79e9)
    facts = get_facts(replace(known, speed_basis="measured"))
    assert (facts["done"], facts["samples/s"]) == ("42%", "1,280.0 (measured)")
    predicted = get_facts(replace(known, speed_basis="predicted"))
    assert predicted["samples/s"] == "1,280.0 (predicted)"
    assert "predicted" in str(predicted["expected end"])
    assert str(facts["expected end"]).startswith("Mon 2026-09-21")
    assert "samples/s" not in get_facts(JobStatus(HANDLE, "running"))


def test_waiting_stores_measurements_unless_the_engine_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_wait, "load_engine", lambda _: Elsewhere(report_lines(3), create_job()))
    job_wait.wait_for_jobs([HANDLE])
    assert [run.steps for run in read_runs()] == [150]
    monkeypatch.setattr(Elsewhere, "keeps_measurements", True)
    monkeypatch.setattr(job_wait, "load_engine", lambda _: Elsewhere(report_lines(4), create_job()))
    job_wait.wait_for_jobs([HANDLE])
    assert len(read_runs()) == 1
