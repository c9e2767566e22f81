"""The engine for this machine."""

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.base import Availability, Engine, Request
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.runner import DEFAULT_POLICY, ensure_runner, policy_set
from gpuyard.jobs.engines.local.settling import settle
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.jobs.engines.local.views import Reports, progress
from gpuyard.jobs.job import FINAL, Handle, Job, JobStatus
from gpuyard.jobs.log_files import read_logs
from gpuyard.jobs.policies import Policy, policy_of
from gpuyard.jobs.progress import latest_loss
from gpuyard.jobs.torchrun import torchrun_line
from gpuyard.share.service.caller import user_name
from gpuyard.share.service.desk import open_desk
from gpuyard.share.store.config import ShareConfig, config_file, read_config, share_directory

if TYPE_CHECKING:
    from gpuyard.jobs.explain import Explanation
    from gpuyard.jobs.known_work import KnownWork
    from gpuyard.steps.windows import StepWindow


@dataclass(frozen=True)
class LocalRequest(Request):
    """A job with what the machine has for it."""

    machine_gpus: int
    known: "KnownWork"

    @property
    def most_gpus(self) -> int:
        return min(self.job.spec.gpus.max, self.machine_gpus)

    def text(self) -> str:
        """As one would type it."""
        job, gpus = self.job, self.most_gpus
        argv = torchrun_line(job.spec.command, gpus_per_node=gpus)
        limit = f" --for {job.spec.time_limit!r}s" if job.spec.time_limit else ""
        project = f" --project {shlex.quote(job.spec.project)}" if job.spec.project else ""
        lines = [f"cd {shlex.quote(str(job.cwd))}"]
        lines += [
            f"export {name}={shlex.quote(value)}"
            if name.isidentifier()
            else f"# and a variable called {name!r}, which no shell can set: {value!r}"
            for name, value in job.environment(gpus).items()
        ]
        lines.append(f"gpuyard lease {gpus}{limit}{project} -- {shlex.join(argv)}")
        if job.spec.gpus.min < gpus:
            lines.insert(
                0, f"# with {gpus} GPUs; from {job.spec.gpus.min} on, as many as there are for it"
            )
        return "\n".join(lines) + "\n"


class LocalEngine(Engine):
    """Jobs of this user on this machine."""

    name = "local"
    keeps_measurements = True

    def __init__(self) -> None:
        self._paths = JobPaths.of_user()
        self._problem = ""
        """Why jobs that wait will not start now."""

    def available(self) -> Availability:
        try:
            config = _config()
        except GpuyardError as error:
            return Availability(False, str(error))
        if config.scheduler != "local":
            return Availability(False, "Slurm gives out the GPUs of this machine")
        return Availability(True)

    def plan(self, job: Job) -> LocalRequest:
        config = _config()
        machine_gpus = len(config.gpus)
        if (job.spec.nodes or 1) > 1:
            raise UserMistake(
                f"the local engine has one machine, and the job wants {job.spec.nodes}; use --engine slurm"
            )
        if job.spec.gpus.min > machine_gpus:
            raise UserMistake(
                f"the job wants {job.spec.gpus.min} GPUs or more; this machine has {machine_gpus}"
            )
        for text in job.spec.after:
            before = Handle.parse(text)
            if before.engine != self.name:
                raise UserMistake(
                    f"a job of this machine can't wait for {before}, which is elsewhere"
                )
            self._row(before)
        return LocalRequest(job, machine_gpus, self._known(job, config))

    def submit(self, request: LocalRequest) -> Handle:
        """The runner first: where none can be started, nothing is queued."""
        self._paths.make()
        with Store(self._paths.store) as store:
            ensure_runner(self._paths)
            handle = store.add(request.job, _environment(), request.known)
        self._look()  # it may have ended since, for want of jobs
        return handle

    def status(self, handle: Handle) -> JobStatus:
        if self._row(handle).state not in FINAL:
            self._look()
        return self._status(self._row(handle))

    def list(self) -> Sequence[JobStatus]:
        if not self._paths.store.exists():
            return ()
        self._look()
        with Store(self._paths.store) as store:
            return [self._status(row) for row in store.rows()]

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        self._row(handle)
        yield from read_logs(
            lambda: self._logs(self._row(handle)),
            lambda: self.status(handle).final,
            follow=follow,
        )

    def cancel(self, handle: Handle) -> None:
        now = time.time()
        while True:
            self.status(handle)  # what has ended meanwhile has not been cancelled
            row = self._row(handle)
            if row.state in FINAL or row.cancelled is not None:
                return
            with Store(self._paths.store) as store:
                if row.in_progress:
                    done = store.change(row, cancelled=now)
                else:
                    done = store.change(row, cancelled=now, state="cancelled", ended=now, reason="")
            if done:
                break
        self._look()

    def policy(self) -> Policy:
        """By which jobs share the GPUs."""
        if not self._paths.store.exists():
            return policy_of(DEFAULT_POLICY)
        with Store(self._paths.store) as store:
            return policy_set(store)

    def set_policy(
        self,
        name: str,
        every_seconds: float | None = None,
        explore_gpu_seconds: float | None = None,
    ) -> None:
        """For all jobs from now on; running ones are resized at most so often, else as often as the policy says."""
        chosen = policy_of(name, explore_gpu_s=explore_gpu_seconds)
        self._paths.make()
        with Store(self._paths.store) as store, store.transaction():
            store.set("policy", chosen.name)
            store.set("every", "" if every_seconds is None else repr(every_seconds))
            store.set("explore", "" if explore_gpu_seconds is None else repr(explore_gpu_seconds))

    def job(self, handle: Handle) -> Job:
        return self._row(handle).job

    def reports(self, handle: Handle) -> "Sequence[StepWindow]":
        return Reports(self._paths).windows(self._row(handle))

    def explain(self, handle: Handle) -> "Explanation":
        from gpuyard.jobs.engines.local.explaining import explain_job

        status = self.status(handle)
        if status.final:
            raise UserMistake(f"{handle} is {status.state}: it neither waits nor runs")
        with Store(self._paths.store) as store:
            rows = store.open_rows()
        return explain_job(self._row(handle), rows, self._paths, self.policy(), time.time())

    def _known(self, job: Job, config: ShareConfig) -> "KnownWork":
        from gpuyard.jobs.known_work import known_work

        kinds = {gpu.catalog for gpu in config.gpus}
        return known_work(
            job.spec, gpu=kinds.pop() if len(kinds) == 1 else None, gpus=len(config.gpus)
        )

    def _row(self, handle: Handle) -> StoredJob:
        if not self._paths.store.exists():
            raise UserMistake(f"there is no job {handle}; nothing was submitted here yet")
        with Store(self._paths.store) as store:
            return store.row(handle)

    def _look(self) -> None:
        """Bring the store up to date, and let its runner go on where one is needed."""
        with Store(self._paths.store) as store:
            settle(store, self._paths)
            needed = bool(store.open_rows())
        if needed:
            try:
                ensure_runner(self._paths)
            except GpuyardError as error:
                self._problem = str(error)

    def _logs(self, row: StoredJob) -> Sequence[Path]:
        every = (self._paths.start(row.number, number).log for number in range(1, row.starts + 1))
        return [log for log in every if os.path.lexists(log)]  # a link is never followed

    def _status(self, row: StoredJob) -> JobStatus:
        job = row.job
        made, reports = None, Reports(self._paths)
        if row.state == "running":
            made = progress(row, reports, time.time())
        return JobStatus(
            handle=row.handle,
            state=row.state,
            uuid=row.uuid,
            name=job.name,
            user=user_name(os.getuid()),
            restarts=row.restarts,
            exit_status=row.exit_status,
            gpus=row.gpus if row.state != "queued" and row.started is not None else None,
            min_gpus=job.spec.gpus.min,
            max_gpus=job.spec.gpus.max,
            nodes=(os.uname().nodename,) if row.state == "running" else (),
            submitted=job.submitted,
            started=row.started,
            ended=row.ended,
            deadline=job.deadline,
            priority=job.spec.priority,
            done=None if made is None else made.share,
            samples_per_second=None if made is None else made.samples_per_second,
            expected_end=None if made is None else made.expected_end,
            loss=latest_loss(reports.windows(row)) if row.starts else None,
            reason=(self._problem if row.state == "queued" else "") or row.reason,
            command=job.spec.command,
            logs=tuple(map(str, self._logs(row))),
        )


def _config() -> ShareConfig:
    """Of the share whose GPUs jobs get; a machine of one's own needs no setup."""
    try:
        shared = config_file(share_directory()).exists()
    except OSError as error:
        raise GpuyardError(f"{error.filename} can't be read: {error.strerror}") from error
    if shared:
        return read_config(share_directory())
    desk = open_desk()
    desk.close()
    return desk.config


def _environment() -> dict[str, str]:
    """What the job sees of this process's: as sbatch does it, all of it."""
    kept = dict(os.environ)
    for name in ("GPUYARD_HOME", "GPUYARD_SHARE_DIR"):  # the job may run in another directory
        if kept.get(name):
            kept[name] = str(Path(kept[name]).expanduser().absolute())
    return kept
