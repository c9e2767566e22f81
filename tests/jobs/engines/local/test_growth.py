"""The cost of a question about jobs does not grow with the jobs that have ended, nor that of waiting with the queue."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.base import select_newest
from gpuyard.jobs.engines.local.engine import LocalEngine
from gpuyard.jobs.engines.local.runner import Runner
from gpuyard.jobs.engines.local.store import Store
from gpuyard.jobs.find_job import find_handle
from gpuyard.jobs.job import Handle, Job, JobStatus, JobSummary
from gpuyard.reporting.reporter import MARKER
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller, user_name
from gpuyard.share.schedule import JobAnnouncement
from gpuyard.specs.job import JobSpec
from tests.jobs.engines.local.conftest import Jobs, until
from tests.jobs.engines.local.filled_store import fill_store
from tests.share.conftest import acting_as

_QUESTIONS: dict[str, Callable[[Store], Any]] = {
    "open jobs": Store.open_jobs,
    "jobs in progress": Store.jobs_in_progress,
    "whether any job is open": Store.has_open_jobs,
    "unmeasured jobs": Store.unmeasured_jobs,
    "the last 3": lambda store: store.ended_jobs(3),
    "one job": lambda store: store.job(Handle("local", "2")),
}


def _count_steps(store: Store, question: Callable[[Store], Any]) -> int:
    """Count the instructions of SQLite's virtual machine, which grow with the rows that it reads."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._connection.set_progress_handler(count, 1)
    question(store)
    store._connection.set_progress_handler(None, 0)
    return steps


@pytest.mark.parametrize("name", _QUESTIONS)
def test_a_question_reads_no_more_rows_after_1000_jobs(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    for ended in (10, 1000):
        monkeypatch.setenv("GPUYARD_HOME", str(home / str(ended)))
        with Store(fill_store(ended=ended, queued=5).store) as store:
            steps.append(_count_steps(store, _QUESTIONS[name]))
    assert steps[1] <= steps[0] + 5, "a deeper tree costs a few steps"


def test_all_jobs_take_longer_so_the_count_can_fail(home: Path) -> None:
    with Store(fill_store(ended=100, queued=0).store) as store:
        assert _count_steps(store, Store.jobs) > 50 * _count_steps(store, Store.open_jobs)


def test_a_runner_reads_the_queue_again_only_after_a_change(jobs: Jobs) -> None:
    paths = fill_store(ended=5, queued=50)
    broker = Broker(Path(os.environ["GPUYARD_SHARE_DIR"]))
    broker.drain((), None)  # so that nothing can start
    with Store(paths.store) as store, Store(paths.store) as other:
        runner, statements = Runner(paths, store), list[str]()
        assert runner.run_round()
        assert runner.run_round()
        store._connection.set_trace_callback(statements.append)
        assert runner.run_round()
        assert not [text for text in statements if "job_json" in text]
        other.update_job(other.open_jobs()[0], reason="changed by another process")
        assert runner.run_round()
        assert [text for text in statements if "job_json" in text]
    broker.close()


def test_the_jobs_that_ended_last_are_listed(jobs: Jobs) -> None:
    fill_store(ended=6, queued=0)

    def list_handles(*options: str) -> list[str]:
        answer = json.loads(jobs.cli("queue", *options, "--json").stdout)
        return [job["handle"].removeprefix("local://") for job in answer["jobs"]]

    assert list_handles() == []
    assert list_handles("--last", "2") == ["5", "6"]
    assert list_handles("--all") == ["1", "2", "3", "4", "5", "6"]
    assert jobs.cli("queue", "--all", "--last", "2").returncode == UserMistake.exit_status
    assert jobs.cli("queue", "--last", "0").returncode == UserMistake.exit_status


def test_a_job_is_found_by_its_number_without_a_list_of_all(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_store(ended=3, queued=0)
    monkeypatch.setattr(LocalEngine, "list", None)
    assert find_handle("2") == Handle("local", "2")
    with pytest.raises(UserMistake):
        find_handle("4")


def test_the_newest_of_several_engines_are_chosen_by_their_end() -> None:
    def end(name: str, ended: float | None) -> JobStatus:
        state: Any = "running" if ended is None else "failed"
        return JobStatus(Handle("slurm", name), state, ended=ended)

    listed = [end("a", 30.0), end("b", 10.0), end("c", None), end("d", 20.0)]
    assert [job.handle.id for job in select_newest(listed, 2)] == ["a", "c", "d"]
    assert [job.handle.id for job in select_newest(listed, 0)] == ["c"]
    assert select_newest(listed, None) == listed


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(command=("/bin/train", "x")),
        JobSpec.model_validate({"command": ["a"], "gpus": "1..4", "name": "n", "priority": 3}),
        JobSpec.model_validate({"command": "a b", "gpus": "2..2", "deadline": "tomorrow 12:00"}),
        JobSpec.model_validate({"command": "a", "checkpoint": "saved", "samples": 5}),
    ],
)
def test_a_summary_says_the_same_as_the_whole_job(spec: JobSpec) -> None:
    job = Job.create(spec, now=1e9)
    summary = JobSummary.from_document(json.loads(json.dumps(job.document())))
    assert (summary.name, summary.command) == (job.name, spec.command)
    assert (summary.min_gpus, summary.max_gpus) == (spec.gpus.min, spec.gpus.max)
    assert (summary.priority, summary.submitted) == (spec.priority, job.submitted)
    assert summary.deadline == job.deadline
    assert summary.resumes == (spec.checkpoint is not None)
    assert (summary.samples, summary.has_workload) == (spec.samples, spec.workload is not None)


def test_a_long_report_file_is_read_only_at_its_end(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work done is known from the last report, or else it is not shown."""
    paths = fill_store(ended=0, queued=1)
    with Store(paths.store) as store:
        store._query("UPDATE jobs SET state = 'running', start_count = 1, gpus = 1")
        job = store.open_jobs()[0]
    steps = paths.start(job.number, 1).steps
    steps.parent.mkdir(parents=True)
    line = {"steps": 1, "samples": 2, "seconds": 1, "number": None, "total": None, "loss": 0.5}
    lines = [
        MARKER + json.dumps({**line, "samples_done": 2 * n, "number": n, "total": 100_000}) + "\n"
        for n in range(1, 50_001)
    ]
    steps.write_text("".join(lines))
    read = []
    original = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        content = original(descriptor, size, offset)
        read.append(len(content))
        return content

    monkeypatch.setattr(os, "pread", pread)
    status = LocalEngine()._build_status(job)
    assert status.done == 0.5
    assert status.loss == 0.5
    assert sum(read) < steps.stat().st_size / 10
    steps.write_text((MARKER + json.dumps(line) + "\n") * 50_000)
    status = LocalEngine()._build_status(job)
    assert status.done is None
    assert status.samples_per_second == 2.0
    with Store(paths.store) as store:
        store._query("UPDATE jobs SET state = 'cancelled', ended = ?", time.time())


def test_everyone_sees_the_open_jobs_of_all_users(jobs: Jobs) -> None:
    def list_jobs() -> list[tuple[str, str, str]]:
        answer = json.loads(jobs.cli("queue", "--everyone", "--json").stdout)
        return [(job["user"], job["job"], job["state"]) for job in answer["jobs"]]

    assert list_jobs() == []
    own = jobs.submit("--gpus", "2", "--", "sleep", "600")
    broker = Broker(Path(os.environ["GPUYARD_SHARE_DIR"]))
    other = acting_as(broker, Caller(65534, 65534, os.getpid()))
    waiting = JobAnnouncement("x", "local://7", "waiting", 4, 4, 4, (1.0,), 60.0, time.time())

    def see_both() -> bool:
        other.schedule("ab", [waiting])  # as its runner does, again and again
        mine = (user_name(os.getuid()), own, "running")
        return sorted(list_jobs()) == sorted([mine, (user_name(65534), "local://7", "waiting")])

    until(see_both, "a list with the jobs of both users")
    shown = jobs.cli("queue", "--everyone").stdout
    assert "wants 4" in shown
    assert "sleep" not in shown, "commands are not announced"
    assert jobs.cli("queue", "--everyone", "--all").returncode == UserMistake.exit_status
    broker.close()
