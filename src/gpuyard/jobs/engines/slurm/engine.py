"""The Slurm engine, from sbatch to scancel. A job's own record of its result counts more than what Slurm says."""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpuyard.errors import GpuyardError, NoResponse, UserMistake
from gpuyard.jobs.engines.base import Availability, Engine, select_newest
from gpuyard.jobs.engines.local.engine import LocalEngine
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.availability import check_availability
from gpuyard.jobs.engines.slurm.records import SlurmRecord, TaskStatus
from gpuyard.jobs.engines.slurm.recovery import cancel_leftovers, recover_tasks, release_held
from gpuyard.jobs.engines.slurm.starts import (
    add_progress,
    keep_measurements,
    list_message_files,
    read_reports,
    read_starts,
)
from gpuyard.jobs.engines.slurm.status import (
    QueueSnapshot,
    combine_tasks,
    keep_result,
    read_queue,
    read_task_status,
)
from gpuyard.jobs.job import FINAL, ExpectedSpeed, Handle, Job, JobStatus
from gpuyard.jobs.log_files import read_logs
from gpuyard.reporting.ranks import RankWindow, read_rank_files
from gpuyard.reporting.windows import StepWindow
from gpuyard.share.ownership import leases_own_gpus, list_own_nodes
from gpuyard.slurm import client
from gpuyard.slurm.jobs import list_jobs

if TYPE_CHECKING:
    from gpuyard.jobs.engines.slurm.request import SlurmRequest
    from gpuyard.jobs.explain import Explanation

_POLL_SECONDS = 2.0


class SlurmEngine(Engine):
    """Runs jobs with Slurm's command-line programs."""

    name: ClassVar[str] = "slurm"
    keeps_measurements: ClassVar[bool] = True
    plans_anywhere: ClassVar[bool] = True

    def available(self) -> Availability:
        return check_availability()

    def plan(self, job: Job) -> "SlurmRequest":
        from gpuyard.jobs.engines.slurm.request import create_request, find_partition
        from gpuyard.slurm.nodes import PartitionNodes, list_partition

        config, nodes, leased = client.UNKNOWN_CONFIG, PartitionNodes(), []
        try:
            config = client.read_config()
            if leases_own_gpus():  # Slurm must not use the GPUs of this machine.
                leased = [node.name for node in list_own_nodes()]
            nodes = list_partition(find_partition(job), without=leased)
        except UserMistake:
            raise
        except GpuyardError:
            pass  # A dry run works without Slurm.
        directory, after = records.job_directory(job.uuid), self._dependencies(job)
        return create_request(
            job, config, nodes, directory, after, policy=LocalEngine().policy(), exclude=leased
        )

    def submit(self, request: "SlurmRequest") -> Handle:
        uuid = request.job.uuid
        if not request.cluster:  # It was planned without Slurm.
            client.read_config()
            request = self.plan(request.job)
        with records.lock(uuid):
            environment = client.job_environment()
            record = records.create(request, environment)
            try:
                number = client.submit(str(record.script), environment)
            except NoResponse as error:
                number = self._find_unanswered(record, error)
            except GpuyardError:
                shutil.rmtree(record.directory, ignore_errors=True)
                raise
            handle_id = f"{record.cluster}/{number}"
            # If Slurm lost a job, it may reuse the number.
            if any(earlier.handle_id == handle_id for earlier in records.read_named(str(number))):
                handle_id = f"{record.cluster}/{uuid}"
            record = record.add_submission(number, time.time(), handle_id)
            record.write()
        return record.handle

    def status(self, handle: Handle) -> JobStatus:
        record, task = records.find(handle)
        if task is not None and task not in record.tasks:
            raise UserMistake(f"{record.handle} has no task {task}")
        return self._status(record, None, task)

    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        jobs = records.read_all(ended)
        queue = read_queue() if any(not record.result for record in jobs) else None
        if queue is not None:
            cancel_leftovers(queue, [record for record in jobs if record.result])
        return select_newest([self._status(record, queue) for record in jobs], ended)

    def find_number(self, number: str) -> Sequence[Handle]:
        handles = [record.handle for record in records.read_named(number)]
        return [handle for handle in handles if handle.id.rpartition("/")[2] == number]

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        record, task = records.find(handle)
        if follow and record.array is not None and task is None:
            raise UserMistake(f"follow one task of the array at a time, like {record.handle}_0")
        is_final = _limit_rate(lambda: self.status(handle).final)
        yield from read_logs(lambda: self._logs(record, task), is_final, follow=follow)
        if not self._logs(record, task):  # The script may have failed before the first start.
            messages = list_message_files(record)
            yield from read_logs(lambda: messages, lambda: True, follow=False)

    def cancel(self, handle: Handle) -> None:
        record, task = records.find(handle)
        if record.result:
            return
        with records.lock(record.uuid):
            jobs = [j for j in list_jobs() if j.comment == record.comment and not j.is_final]
            for number in {job.number for job in jobs if task in {None, job.task}}:
                client.cancel(f"{number}" if task is None else f"{number}_{task}")
            if task is None:
                from gpuyard.jobs.engines.slurm.rebalancing import cancel_companions

                cancel_companions(record)
                replace(records.read(record.uuid), canceled=True).write()

    def prune(self, before: float, *, limit: int = -1, dry_run: bool = False) -> int:
        return records.prune(before, limit=limit, dry_run=dry_run)

    def job(self, handle: Handle) -> Job:
        """Return the job; a handle of one array task stands for a job with that task alone."""
        record, task = records.find(handle)
        spec = record.job.spec
        if task is None or spec.slurm is None:
            return record.job
        options = spec.slurm.model_copy(update={"array": task})
        return replace(record.job, spec=spec.model_copy(update={"slurm": options}))

    def reports(self, handle: Handle) -> Sequence[StepWindow]:
        return read_reports(records.find(handle)[0])

    def rank_reports(self, handle: Handle) -> Sequence[RankWindow]:
        record, task = records.find(handle)
        starts = read_starts(record.directory, task if task is not None else record.tasks[0])
        if not starts:
            return []
        return read_rank_files(starts[-1].log.with_suffix(".steps"), starts[-1].log)

    def expected_speed(self, handle: Handle) -> ExpectedSpeed | None:
        speed = records.find(handle)[0].speed
        if speed is None:
            return None
        middle = speed.samples_per_second
        return ExpectedSpeed(middle, middle * speed.low, middle * speed.high, speed.parts)

    def explain(self, handle: Handle) -> "Explanation | None":
        from gpuyard.jobs.engines.slurm.explanation import explain_job

        record, task = records.find(handle)
        status = self.status(handle)
        if task is not None or record.array is not None:
            return None
        if status.final:
            raise UserMistake(f"{handle} is {status.state}: it neither waits nor runs")
        jobs = read_queue().jobs or ()
        starts = [j.started for j in jobs if j.comment == record.comment and not j.is_final]
        return explain_job(record, status, starts[0] if starts else None, time.time())

    def _status(
        self, record: SlurmRecord, queue: QueueSnapshot | None, task: str | None = None
    ) -> JobStatus:
        logs = [str(path) for path in self._logs(record, task)]
        if task is None and record.result is not None:
            return combine_tasks(record, [record.result], logs)
        queue = queue or read_queue()
        tasks = record.tasks if task is None else [task]
        statuses = [self._task_status(record, each, queue) for each in tasks]
        if any(status is None for status in statuses):
            record, recovered = recover_tasks(record, self._dependencies)
            statuses = [
                status or recovered[each] for status, each in zip(statuses, tasks, strict=True)
            ]
        status = combine_tasks(record, [each for each in statuses if each is not None], logs)
        if task is not None:
            status = replace(status, handle=Handle(self.name, f"{record.handle.id}_{task}"))
        if status.final and task is None:
            cancel_leftovers(queue, [record])
            if keep_result(record, status):
                keep_measurements(record)
        return add_progress(status, record)

    def _task_status(
        self, record: SlurmRecord, task: str | None, queue: QueueSnapshot
    ) -> TaskStatus | None:
        status = read_task_status(record, task, queue)
        if status is None or status.state != "queued":
            return status
        return replace(status, reason=release_held(record, task, queue) or status.reason)

    def _dependencies(self, job: Job) -> Sequence[int | str]:
        """Return the numbers of the jobs that must still succeed first."""
        numbers: list[int | str] = []
        for text in job.spec.after:
            handle = Handle.parse(text)
            if handle.engine != self.name:
                raise UserMistake(
                    f"a Slurm job cannot depend on {handle}, only on another Slurm job"
                )
            status = self.status(handle)
            if status.state in FINAL - {"succeeded"}:
                raise UserMistake(f"{handle}, which must succeed first, is {status.state}")
            if status.state == "succeeded":
                continue
            record, task = records.find(handle)
            if not record.submissions:
                raise GpuyardError(
                    f"{handle}, which must succeed first, may not have reached Slurm; check it with: "
                    f"gpuyard status {handle}"
                )
            number = record.submissions[-1].number
            numbers.append(number if task is None else f"{number}_{task}")
        return numbers

    def _find_unanswered(self, record: SlurmRecord, error: NoResponse) -> int:
        """Find the number of a job after an unanswered sbatch: Slurm may have accepted it."""
        try:
            jobs = [job for job in list_jobs() if job.comment == record.comment]
        except GpuyardError:
            raise GpuyardError(
                f"{error}. Slurm may have accepted the job; once Slurm answers, check with: "
                f"gpuyard status {record.handle}"
            ) from error
        if not jobs:
            shutil.rmtree(record.directory, ignore_errors=True)
            raise error
        return jobs[0].number

    def _logs(self, record: SlurmRecord, task: str | None) -> Sequence[Path]:
        tasks = record.tasks if task is None else [task]
        return [start.log for each in tasks for start in read_starts(record.directory, each)]


def _limit_rate(is_final: Callable[[], bool]) -> Callable[[], bool]:
    """Ask Slurm only every few seconds, however often the log is polled."""
    checked, final = -math.inf, False

    def check() -> bool:
        nonlocal checked, final
        if not final and time.monotonic() - checked > _POLL_SECONDS:
            final = is_final()
            checked = time.monotonic()
        return final

    return check
