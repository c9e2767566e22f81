"""A job store as it is after months of use."""

import json
import time

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.store import Store
from gpuyard.jobs.job import Job
from gpuyard.jobs.work_estimate import WorkEstimate
from gpuyard.specs.job import JobSpec


def fill_store(*, ended: int, queued: int, ended_at: float | None = None) -> JobPaths:
    """Add jobs that ran for a minute and jobs that wait, without running anything."""
    paths, now = JobPaths.for_user(), time.time()
    end = ended_at or now - 60
    paths.create()
    job = Job.create(JobSpec(command=("python", "train.py"), gpus=1), now=now)
    estimate = json.dumps(WorkEstimate().document())
    with Store(paths.store) as store, store.transaction():
        for number in range(ended + queued):
            new = job.resubmit(now - ended + number)
            (row,) = store._query(
                "INSERT INTO jobs (uuid, job_json, estimate_json) VALUES (?, ?, ?) RETURNING number",
                *(new.uuid, json.dumps(new.document()), estimate),
            )
            store._query("INSERT INTO environments VALUES (?, ?)", row[0], '{"HOME": "/root"}')
            if number < ended:
                store._query(
                    "UPDATE jobs SET state = 'succeeded', start_count = 1, measured_starts = 1, gpus = 1,"
                    " exit_status = 0, started = ?, ended = ? WHERE number = ?",
                    *(end - 60, end + number * 1e-3, row[0]),
                )
                store._query(
                    "INSERT INTO starts (job, number, gpus, started, outcome, exit_status, ended)"
                    " VALUES (?, 1, 1, ?, 'exited', 0, ?)",
                    *(row[0], end - 60, end),
                )
    return paths
