"""Jobs on Slurm, from sbatch to scancel; a job that Slurm has lost is noticed by its UUID and submitted again, once."""

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpuyard.errors import GpuyardError, NoAnswer, UserMistake
from gpuyard.files import write_text
from gpuyard.jobs.engines.base import Availability, Engine
from gpuyard.jobs.engines.local.engine import LocalEngine
from gpuyard.jobs.engines.slurm import commands, records
from gpuyard.jobs.engines.slurm.commands import SlurmConfig
from gpuyard.jobs.engines.slurm.rebalancing import end_companion_asked_for
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.request import SlurmRequest, default_partition, make_request
from gpuyard.jobs.engines.slurm.rows import accounting_rows, numbered_rows, queue_rows
from gpuyard.jobs.engines.slurm.starts import (
    all_reports,
    keep_measurements,
    messages_of,
    starts_of,
    with_progress,
)
from gpuyard.jobs.engines.slurm.status import (
    QueueSnapshot,
    TaskStatus,
    combined,
    finish,
    finished,
    queue_snapshot,
    task_status,
)
from gpuyard.jobs.job import FINAL, Handle, Job, JobStatus
from gpuyard.jobs.log_files import read_logs
from gpuyard.steps.windows import StepWindow

if TYPE_CHECKING:
    from gpuyard.jobs.explain import Explanation

_MOST_SUBMISSIONS = 2
_SURE_SECONDS = 5.0
_FOLLOW_SECONDS = 2.0
_DEPENDENCY = re.compile(r"^#SBATCH --dependency=.*$", re.MULTILINE)
_LOST_AND_BACK = "Slurm had lost it, so it was submitted again"


class SlurmEngine(Engine):
    """Through Slurm's own programs."""

    name: ClassVar[str] = "slurm"
    keeps_measurements: ClassVar[bool] = True
    plans_anywhere: ClassVar[bool] = True

    def available(self) -> Availability:
        if (missing := commands.missing_program()) is not None:
            return Availability(ok=False, reason=f"{missing} is not on the PATH")
        try:
            commands.slurm_config()
        except GpuyardError as error:
            return Availability(ok=False, reason=str(error), down=isinstance(error, NoAnswer))
        return Availability(ok=True)

    def plan(self, job: Job) -> SlurmRequest:
        config, nodes = commands.NOT_ASKED, commands.PartitionNodes()
        try:
            config, nodes = commands.slurm_config(), commands.nodes(default_partition(job))
        except UserMistake:
            raise
        except GpuyardError:
            pass  # a dry run, maybe where there is no Slurm
        directory, after = records.directory_of(job.uuid), self._after(job)
        return make_request(job, config, nodes, directory, after, policy=LocalEngine().policy())

    def submit(self, request: SlurmRequest) -> Handle:
        uuid = request.job.uuid
        if not request.cluster:  # it was planned without Slurm
            commands.slurm_config()
            request = self.plan(request.job)
        with records.held(uuid):
            environment = commands.job_environment()
            record = records.create(request, environment)
            try:
                number = commands.sbatch(str(record.script), environment)
            except NoAnswer as silent:
                number = self._after_silence(record, silent)
            except GpuyardError:
                shutil.rmtree(record.directory, ignore_errors=True)
                raise
            handle_id = f"{record.cluster}/{number}"
            if records.is_taken(handle_id):  # by a job that Slurm has lost, with its number
                handle_id = f"{record.cluster}/{uuid}"
            record = record.submitted_as(number, time.time(), handle_id)
            record.write()
        return record.handle

    def status(self, handle: Handle) -> JobStatus:
        record, task = records.find(handle)
        if task is not None and task not in record.tasks:
            raise UserMistake(f"{record.handle} has no task {task}")
        return self._status(record, None, task)

    def list(self) -> Sequence[JobStatus]:
        found = records.read_all()
        seen = queue_snapshot() if any(not record.end for record in found) else None
        return [self._status(record, seen) for record in found]

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        record, task = records.find(handle)
        if follow and record.array is not None and task is None:
            raise UserMistake(f"follow one task of the array at a time, like {record.handle}_0")
        ended = _seldom(lambda: self.status(handle).final)
        yield from read_logs(lambda: self._logs(record, task), ended, follow=follow)
        if not self._logs(record, task):  # it has never started, maybe because its script could not
            yield from read_logs(lambda: messages_of(record.directory), lambda: True, follow=False)

    def cancel(self, handle: Handle) -> None:
        record, task = records.find(handle)
        if record.end:
            return
        with records.held(record.job.uuid):
            own = [row for row in queue_rows() if row.uuid == record.job.uuid and not row.final]
            for number in {row.number for row in own if task in {None, row.task}}:
                commands.scancel(f"{number}" if task is None else f"{number}_{task}")
            if task is None:
                end_companion_asked_for(record)
                replace(records.read(record.job.uuid), cancelled=True).write()

    def job(self, handle: Handle) -> Job:
        """One task of an array is a job of its own here: what is done with it is not meant for the others."""
        record, task = records.find(handle)
        spec = record.job.spec
        if task is None or spec.slurm is None:
            return record.job
        own = spec.slurm.model_copy(update={"array": task})
        return replace(record.job, spec=spec.model_copy(update={"slurm": own}))

    def reports(self, handle: Handle) -> Sequence[StepWindow]:
        return all_reports(records.find(handle)[0])

    def explain(self, handle: Handle) -> "Explanation | None":
        from gpuyard.jobs.engines.slurm.explaining import explain_job

        record, task = records.find(handle)
        status = self.status(handle)
        if task is not None or record.array is not None:
            return None
        if status.final:
            raise UserMistake(f"{handle} is {status.state}: it neither waits nor runs")
        rows = queue_snapshot().rows or ()
        meant = [row.started for row in rows if row.uuid == record.job.uuid and not row.final]
        return explain_job(record, status, meant[0] if meant else None, time.time())

    def _status(
        self, record: SlurmRecord, seen: QueueSnapshot | None, task: str | None = None
    ) -> JobStatus:
        logs = [str(path) for path in self._logs(record, task)]
        if task is None and (end := finished(record)) is not None:
            return combined(record, [end], logs)
        seen = seen or queue_snapshot()
        tasks = record.tasks if task is None else [task]
        parts = [task_status(record, one, seen.rows, seen.reason) for one in tasks]
        if any(part is None for part in parts):
            record, found = self._missing(record, tasks)
            parts = [part or other for part, other in zip(parts, found, strict=True)]
        status = combined(record, [part for part in parts if part is not None], logs)
        if task is not None:
            status = replace(status, handle=Handle(self.name, f"{record.handle.id}_{task}"))
        if status.final and task is None and finish(record, status):
            keep_measurements(record)
        return with_progress(status, record)

    def _missing(
        self, record: SlurmRecord, tasks: Sequence[str | None]
    ) -> tuple[SlurmRecord, Sequence[TaskStatus]]:
        """Slurm has answered, and does not know the job, and no script of it says that it has ended."""
        with records.held(record.job.uuid, wait=False) as ours:
            if not ours:
                return record, [TaskStatus("queued", reason="it is being submitted")] * len(tasks)
            record = records.read(record.job.uuid)
            try:
                config = commands.slurm_config()
                if config.cluster != record.cluster:
                    reason = f"Slurm here is {config.cluster}, and the job is on {record.cluster}"
                    return record, [TaskStatus("unknown", reason=reason)] * len(tasks)
                rows = queue_rows()  # now that nobody else submits it
                numbers = [one.number for one in record.submissions]
                if numbers and not any(row.uuid == record.job.uuid for row in rows):
                    rows = accounting_rows(numbers, record.job.uuid)
                found = [task_status(record, task, rows, "") for task in tasks]
                if all(part is None for part in found) and not record.cancelled:
                    record, lost = self._lost(record, config)
                else:
                    lost = _forgotten(record)
            except GpuyardError as silent:
                return record, [TaskStatus("unknown", reason=str(silent))] * len(tasks)
            return record, [part or lost for part in found]

    def _lost(self, record: SlurmRecord, config: SlurmConfig) -> tuple[SlurmRecord, TaskStatus]:
        """Submit it again if Slurm has certainly lost it, and only once."""
        if not record.submissions:
            return record, TaskStatus(
                "lost", reason="Slurm never took it; submit it again with: gpuyard retry"
            )
        last = record.submissions[-1]
        age = time.time() - last.at
        certain = (
            last.number >= config.next_number  # it counts from before
            or age < config.forgets_after_seconds - _SURE_SECONDS  # it can't have ended long ago
            or any(row.uuid != record.job.uuid for row in numbered_rows(last.number))
        )
        if not certain or len(record.submissions) >= _MOST_SUBMISSIONS:
            return record, _forgotten(record)
        try:
            number = self._submit_again(record)
        except NoAnswer:
            raise
        except GpuyardError as error:
            return record, TaskStatus(
                "lost", reason=f"Slurm has lost it; submitting it again: {error}"
            )
        record = record.submitted_as(number, time.time())
        record.write()
        return record, TaskStatus("queued", reason=_LOST_AND_BACK)

    def _submit_again(self, record: SlurmRecord) -> int:
        """The same script and environment, after jobs whose numbers may have changed."""
        if record.job.spec.after:
            after = ":".join(map(str, self._after(record.job)))
            line = f"#SBATCH --dependency=afterok:{after}" if after else "# no dependency is left"
            text = _DEPENDENCY.sub(line, record.script.read_text(encoding="utf-8"))
            write_text(record.script, text, mode=0o700)
        return commands.sbatch(str(record.script), record.environment())

    def _after(self, job: Job) -> Sequence[int | str]:
        """Numbers of the jobs that have to succeed first; those that have are not asked for again."""
        numbers: list[int | str] = []
        for text in job.spec.after:
            handle = Handle.parse(text)
            if handle.engine != self.name:
                raise UserMistake(
                    f"a job on Slurm can't come after {handle}, only after another on Slurm"
                )
            status = self.status(handle)
            if status.state in FINAL - {"succeeded"}:
                raise UserMistake(f"{handle}, which has to succeed first, is {status.state}")
            if status.state == "succeeded":
                continue
            record, task = records.find(handle)
            if not record.submissions:
                raise GpuyardError(
                    f"it is not known whether Slurm has {handle}, which has to succeed first"
                )
            number = record.submissions[-1].number
            numbers.append(number if task is None else f"{number}_{task}")
        return numbers

    def _after_silence(self, record: SlurmRecord, silent: NoAnswer) -> int:
        """sbatch got no answer: Slurm may have the job nevertheless."""
        try:
            rows = [row for row in queue_rows() if row.uuid == record.job.uuid]
        except GpuyardError:
            raise GpuyardError(
                f"{silent}. It is not known whether Slurm took the job; when it answers again, this "
                f"tells: gpuyard status {record.handle}"
            ) from silent
        if not rows:
            shutil.rmtree(record.directory, ignore_errors=True)
            raise silent
        return rows[0].number

    def _logs(self, record: SlurmRecord, task: str | None) -> Sequence[Path]:
        tasks = record.tasks if task is None else [task]
        return [start.log for one in tasks for start in starts_of(record.directory, one)]


def _forgotten(record: SlurmRecord) -> TaskStatus:
    if record.cancelled:
        return TaskStatus("cancelled")
    return TaskStatus(
        "lost",
        reason="Slurm does not know it any more, and it left no word of its end; submit it again with: "
        "gpuyard retry",
    )


def _seldom(ended: Callable[[], bool]) -> Callable[[], bool]:
    """Slurm is asked now and then, however often a log is looked at."""
    asked, answer = -math.inf, False

    def look() -> bool:
        nonlocal asked, answer
        if not answer and time.monotonic() - asked > _FOLLOW_SECONDS:
            answer = ended()
            asked = time.monotonic()
        return answer

    return look
