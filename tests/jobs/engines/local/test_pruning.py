"""Jobs that ended long ago are deleted with their files, unless something still needs them."""

import json
import time
from typing import Any

from gpuyard.jobs.engines.local.store import Store
from tests.jobs.engines.local.conftest import Jobs, until
from tests.jobs.engines.local.filled_store import fill_store

DAY_SECONDS = 86400.0


def _list_numbers(jobs: Jobs) -> list[int]:
    with Store(jobs.paths.store) as store:
        return [job.number for job in store.jobs()]


def _run_json(jobs: Jobs, *arguments: str) -> dict[str, Any]:
    done = jobs.cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_runner_deletes_old_jobs_on_which_no_open_job_depends(jobs: Jobs) -> None:
    fill_store(ended=3, queued=0, ended_at=time.time() - 91 * DAY_SECONDS)
    fill_store(ended=1, queued=0)
    log = jobs.paths.start(1, 1).log
    log.parent.mkdir(parents=True)
    log.write_text("old")
    open_job = jobs.submit("--after", "local://2", "--", "sleep", "600")
    assert open_job == "local://5"
    until(lambda: _list_numbers(jobs) == [2, 4, 5], "the deletion of old jobs")
    assert not jobs.paths.job(1).exists()
    assert jobs.cli("status", "local://1").returncode == 2
    assert jobs.cli("status", "local://2").returncode == 0
    jobs.cli("cancel", open_job)
    jobs.wait(open_job)
    assert _run_json(jobs, "queue", "prune", "--dry-run")["pruned"] == 1
    assert _run_json(jobs, "queue", "prune")["pruned"] == 1
    assert _list_numbers(jobs) == [4, 5]
    assert jobs.submit("--", "true") == "local://6", "a number is never used again"


def test_the_user_sets_how_long_jobs_are_kept(jobs: Jobs) -> None:
    fill_store(ended=2, queued=0, ended_at=time.time() - 10 * DAY_SECONDS)
    assert _run_json(jobs, "queue", "prune") == {
        "pruned": 0,
        "keep_seconds": 90 * DAY_SECONDS,
        "dry_run": False,
    }
    assert _run_json(jobs, "queue", "keep", "5d", "--dry-run")["keep_seconds"] == 5 * DAY_SECONDS
    assert _run_json(jobs, "queue", "prune")["pruned"] == 0, "a dry run sets nothing"
    assert _run_json(jobs, "queue", "keep", "forever")["keep_seconds"] is None
    assert _run_json(jobs, "queue", "prune")["pruned"] == 0
    assert _run_json(jobs, "queue", "keep", "5d")["keep_seconds"] == 5 * DAY_SECONDS
    assert _run_json(jobs, "queue", "prune")["pruned"] == 2
    for mistake in (
        ["keep", "1h"],
        ["keep", "x"],
        ["keep"],
        ["prune", "--all"],
        ["--all", "prune"],
    ):
        assert jobs.cli("queue", *mistake).returncode == 2


def test_a_job_stays_until_its_reports_are_stored(jobs: Jobs) -> None:
    fill_store(ended=2, queued=0, ended_at=time.time() - 100 * DAY_SECONDS)
    with Store(jobs.paths.store) as store:
        store._query("UPDATE jobs SET measured_starts = 0 WHERE number = 1")
    assert _run_json(jobs, "queue", "prune")["pruned"] == 1
    assert _list_numbers(jobs) == [1]
