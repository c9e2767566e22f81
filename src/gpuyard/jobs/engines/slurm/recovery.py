"""Recovery of jobs that Slurm lost, killed, or holds: they are submitted again, or released, a limited number of times.

A job's own record of its result counts more than Slurm's opinion. Only a job without a recorded result is recovered.
"""

import contextlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.files import write_text
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.records import SlurmRecord, TaskStatus
from gpuyard.jobs.engines.slurm.starts import has_running_start, read_starts
from gpuyard.jobs.engines.slurm.status import QueueSnapshot, find_newest_job, read_task_status
from gpuyard.jobs.job import Job
from gpuyard.slurm import client
from gpuyard.slurm.client import SlurmConfig
from gpuyard.slurm.jobs import SlurmJob, find_jobs, list_accounted_jobs, list_jobs
from gpuyard.units import format_count

_AGE_MARGIN_SECONDS = 5.0
_SETTLE_SECONDS = 10.0  # Slurm may still requeue a job that it has just ended.
_DEPENDENCY = re.compile(r"^#SBATCH --dependency=.*$", re.MULTILINE)
_RETRY = "submit it again with: gpuyard retry"

FindDependencies = Callable[[Job], Sequence[int | str]]


def cancel_leftovers(queue: QueueSnapshot, finished: Collection[SlurmRecord]) -> None:
    """Remove jobs from Slurm's queue that have finished according to their own record, as Slurm may have requeued them."""
    comments = {record.comment for record in finished}
    for job in queue.jobs or ():
        if job.state == "queued" and job.comment in comments:
            with contextlib.suppress(GpuyardError):
                client.cancel(job.id)


def release_held(record: SlurmRecord, task: str | None, queue: QueueSnapshot) -> str:
    """Release a job whose launch failed, as often as it may be restarted; return what to show."""
    job = find_newest_job(record, task, queue)
    if job is None or not job.is_held_after_launch:
        return ""
    if has_running_start(record.directory, task):
        return "Slurm holds it because a launch failed, but a start of it still runs"
    if job.restarts <= record.job.spec.retries.lost:
        with contextlib.suppress(GpuyardError):
            client.run("scontrol", "release", job.id)
            return "its launch failed, and gpuyard released it again"
    return (
        f"Slurm holds it after {job.restarts} failed launches; `sinfo -R` shows the nodes with errors; "
        f"release it with: scontrol release {job.id}"
    )


@dataclass(frozen=True)
class Recovery:
    """The recovery of one job, while no other process recovers or submits it."""

    record: SlurmRecord
    config: SlurmConfig
    find_dependencies: FindDependencies

    def recover(self) -> tuple[SlurmRecord, Mapping[str | None, TaskStatus]]:
        """Find out what became of each task, and submit those again that ended without a result."""
        record, queue = self.record, self._read_queue()
        known = {task: read_task_status(record, task, queue) for task in record.tasks}
        status = TaskStatus("cancelled")
        if not record.canceled:
            for task in [task for task, status in known.items() if status is None]:
                job = find_newest_job(record, task, queue)
                if job is not None:
                    record, known[task] = self._restart(record, task, job)
            if not any(known.values()):
                record, status = self._submit_if_lost(record)
            elif not all(known.values()):
                status = _forgotten_status()
        return record, {task: known_status or status for task, known_status in known.items()}

    def _read_queue(self) -> QueueSnapshot:
        record = self.record
        jobs = list_jobs()  # Read again, now that no other process submits the job.
        numbers = [submission.number for submission in record.submissions]
        if numbers and not any(job.comment == record.comment for job in jobs):
            uuid, comment = record.uuid, record.comment
            jobs = list_accounted_jobs(numbers, submit_line_contains=uuid, comment=comment)
        return QueueSnapshot(tuple(jobs))

    def _restart(
        self, record: SlurmRecord, task: str | None, job: SlurmJob
    ) -> tuple[SlurmRecord, TaskStatus]:
        """Submit a task again that Slurm ended before its command did."""
        cause = f"Slurm ended it before its command ended ({job.slurm_state})"
        if has_running_start(record.directory, task):
            reason = f"{cause}, but its processes still run; once they end, it is submitted again"
            return record, TaskStatus("running", nodes=(job.nodes,), reason=reason)
        if job.ended is not None and time.time() < job.ended + _SETTLE_SECONDS:
            reason = f"{cause}; gpuyard will submit it again"
            return record, TaskStatus("queued", reason=reason)
        return self._submit_again(record, task, cause, record.job.spec.retries.lost)

    def _submit_if_lost(self, record: SlurmRecord) -> tuple[SlurmRecord, TaskStatus]:
        """Submit the job again if Slurm has certainly lost it."""
        if not record.submissions:
            return record, TaskStatus("lost", reason=f"Slurm never accepted it; {_RETRY}")
        last = record.submissions[-1]
        age_seconds = time.time() - last.at
        starts = read_starts(record.directory)
        is_lost = (
            last.number >= self.config.next_job_id  # The controller restored an older state.
            # The job cannot have finished long enough ago to be forgotten.
            or age_seconds < self.config.min_job_age_seconds - _AGE_MARGIN_SECONDS
            or any(job.comment != record.comment for job in find_jobs(last.number))
            or (starts and starts[-1].again and starts[-1].ended is not None)
        )
        if not is_lost:
            return record, _forgotten_status()
        # It may never have started, so it gets a second chance without any retries.
        retries = max(1, record.job.spec.retries.lost)
        return self._submit_again(record, None, "Slurm lost it", retries)

    def _submit_again(
        self, record: SlurmRecord, task: str | None, cause: str, retries: int
    ) -> tuple[SlurmRecord, TaskStatus]:
        if len(record.submissions) > retries * len(record.tasks):
            times = format_count(len(record.submissions), "submission")
            return record, TaskStatus("lost", reason=f"{cause}, after {times}; {_RETRY}")
        try:
            number = self._submit(record, task)
        except NoResponse:
            raise
        except GpuyardError as error:
            reason = f"{cause}, and submitting it again failed: {error}"
            return record, TaskStatus("lost", reason=reason)
        record = record.add_submission(number, time.time())
        record.write()
        return record, TaskStatus("queued", reason=f"{cause}, so it was submitted again")

    def _submit(self, record: SlurmRecord, task: str | None) -> int:
        """Submit the same script and environment; the numbers of the jobs that it depends on may have changed."""
        if record.job.spec.after:
            after = ":".join(map(str, self.find_dependencies(record.job)))
            line = f"#SBATCH --dependency=afterok:{after}" if after else "# No dependency remains."
            text = _DEPENDENCY.sub(line, record.script.read_text(encoding="utf-8"))
            write_text(record.script, text, mode=0o700)
        options = () if task is None else (f"--array={task}",)
        return client.submit(str(record.script), record.read_environment(), *options)


def recover_tasks(
    record: SlurmRecord, find_dependencies: FindDependencies
) -> tuple[SlurmRecord, Mapping[str | None, TaskStatus]]:
    """Recover a job without a result that Slurm ended or does not know, unless another process recovers it now."""
    with records.lock(record.uuid, wait=False) as locked:
        status = TaskStatus("queued", reason="it is being submitted")
        if locked:
            record = records.read(record.uuid)
            try:
                config = client.read_config()
                if config.cluster == record.cluster:
                    return Recovery(record, config, find_dependencies).recover()
                reason = f"it is on the cluster {record.cluster}; Slurm here is {config.cluster}"
            except GpuyardError as error:
                reason = str(error)
            status = TaskStatus("unknown", reason=reason)
    return record, dict.fromkeys(record.tasks, status)


def _forgotten_status() -> TaskStatus:
    reason = f"Slurm no longer knows it, and it recorded no result; {_RETRY}"
    return TaskStatus("lost", reason=reason)
