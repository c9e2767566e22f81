"""Delete the records and files of jobs that ended long ago. Their measurements stay in the results store."""

import json
import shutil

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.store import Store

DEFAULT_KEEP_SECONDS = 90 * 86400.0
_SETTING = "keep"


def read_keep_seconds(store: Store) -> float:
    """Return how long ended jobs are kept; infinity: forever."""
    return float(store.setting(_SETTING) or DEFAULT_KEEP_SECONDS)


def set_keep_seconds(store: Store, seconds: float) -> None:
    """Set how long ended jobs are kept; infinity: forever."""
    store.set_setting(_SETTING, repr(seconds))


def prune_jobs(
    store: Store, paths: JobPaths, before: float, *, limit: int = -1, dry_run: bool = False
) -> int:
    """Delete up to `limit` jobs that ended before a time (-1: all), and return their number.

    A job stays if an open one depends on it, or if its reports are not yet in the results store.
    """
    needed = _find_dependencies(store) if store.find_ended_before(before, 1) else frozenset()
    numbers = [
        number
        for number in store.find_ended_before(before, -1 if limit < 0 else limit + len(needed))
        if f"local://{number}" not in needed
    ][: limit if limit >= 0 else None]
    if not dry_run:
        for number in numbers:
            # first the files: a job that is interrupted here is found and deleted again
            shutil.rmtree(paths.job(number), ignore_errors=True)
            store.delete_job(number)
    return len(numbers)


def _find_dependencies(store: Store) -> frozenset[str]:
    """Return the handles that open jobs come after."""
    specs = (json.loads(job.job_json)["spec"] for job in store.open_jobs())
    return frozenset(handle for spec in specs for handle in spec.get("after", ()))
