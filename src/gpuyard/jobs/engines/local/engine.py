"""The engine that runs jobs on this machine."""

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import expand_home
from gpuyard.jobs.engines.base import Availability, Engine, Request
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.pruning import (
    DEFAULT_KEEP_SECONDS,
    prune_jobs,
    read_keep_seconds,
    set_keep_seconds,
)
from gpuyard.jobs.engines.local.reports import StepReports, read_progress
from gpuyard.jobs.engines.local.runner_process import ensure_runner
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.jobs.engines.local.transitions import close_dead_starts
from gpuyard.jobs.gpu_samples import GpuSample, read_samples
from gpuyard.jobs.job import FINAL, ExpectedSpeed, Handle, Job, JobStatus
from gpuyard.jobs.job_wait import describe_checkpoints
from gpuyard.jobs.log_files import read_logs
from gpuyard.jobs.torchrun import complete_torchrun_command
from gpuyard.reporting.ranks import RankWindow, read_rank_files
from gpuyard.reporting.windows import latest_loss
from gpuyard.share.caller import this_process, user_name
from gpuyard.share.config import (
    DEFAULT_JOB_POLICY,
    ShareConfig,
    is_set_up,
    read_config,
    share_directory,
)

if TYPE_CHECKING:
    from gpuyard.jobs.explain import Explanation
    from gpuyard.jobs.progress import Progress
    from gpuyard.jobs.work_estimate import WorkEstimate
    from gpuyard.policies import Policy
    from gpuyard.reporting.windows import StepWindow


@dataclass(frozen=True)
class LocalRequest(Request):
    """A job with the GPUs of this machine and an estimate of its work."""

    machine_gpus: int
    estimate: "WorkEstimate"

    def text(self) -> str:
        """Return shell commands that would run the job now, with as many GPUs as it may use."""
        job = self.job
        gpus = min(job.spec.gpus.max, self.machine_gpus)
        argv = complete_torchrun_command(job.spec.command, gpus_per_node=gpus)
        limit = f" --for {job.spec.time_limit!r}s" if job.spec.time_limit else ""
        project = f" --project {shlex.quote(job.spec.project)}" if job.spec.project else ""
        lines = [f"cd {shlex.quote(str(job.cwd))}"]
        lines += [
            f"export {name}={shlex.quote(value)}"
            if name.isidentifier()
            else f"# also the variable {name!r}, which a shell cannot set: {value!r}"
            for name, value in job.environment(gpus).items()
        ]
        lines.append(f"gpuyard lease {gpus}{limit}{project} -- {shlex.join(argv)}")
        if job.spec.gpus.min < gpus:
            lines.insert(0, f"# with {gpus} GPUs; it may get any number from {job.spec.gpus.min}")
        return "\n".join(lines) + "\n"


class LocalEngine(Engine):
    """This user's jobs on this machine."""

    name = "local"
    keeps_measurements = True

    def __init__(self) -> None:
        self._paths = JobPaths.for_user()
        self._runner_error = ""
        """Why jobs that wait cannot start now."""

    def available(self) -> Availability:
        try:
            config = _read_share_config()
        except GpuyardError as error:
            return Availability(False, str(error))
        if config.scheduler != "local":
            return Availability(False, "Slurm manages the GPUs of this machine")
        return Availability(True)

    def plan(self, job: Job) -> LocalRequest:
        config = _read_share_config()
        machine_gpus = len(config.gpus)
        if (job.spec.nodes or 1) > 1:
            raise UserMistake(
                f"the local engine has one machine, and the job needs {job.spec.nodes}; use --engine slurm"
            )
        if job.spec.gpus.min > machine_gpus:
            raise UserMistake(
                f"the job needs at least {job.spec.gpus.min} GPUs; this machine has {machine_gpus}"
            )
        caller = this_process()
        config.rules.check_quota(caller.uid, caller.user, job.spec.gpus.min)
        if job.spec.time_limit:
            config.rules.check_time("job", job.spec.time_limit)
        for text in job.spec.after:
            dependency = Handle.parse(text)
            if dependency.engine != self.name:
                raise UserMistake(
                    f"a local job cannot wait for {dependency}, which runs on another engine"
                )
            self._read_job(dependency)
        return LocalRequest(job, machine_gpus, _estimate_work(job, config))

    def submit(self, request: LocalRequest) -> Handle:
        """Queue the job; nothing is queued if its program is missing or no runner can be started."""
        _check_program(request.job)
        self._paths.create()
        with Store(self._paths.store) as store:
            ensure_runner(self._paths)
            handle = store.add_job(request.job, _copy_environment(), request.estimate)
        self._update()  # the runner may have exited since, because it had no jobs
        return handle

    def status(self, handle: Handle) -> JobStatus:
        if self._read_job(handle).state not in FINAL:
            self._update()
        return self._build_status(self._read_job(handle))

    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        if not self._paths.store.exists():
            return ()
        self._update()
        with Store(self._paths.store) as store:
            jobs = store.jobs() if ended is None else (*store.ended_jobs(ended), *store.open_jobs())
        return [self._build_status(job) for job in sorted(jobs, key=lambda job: job.number)]

    def find_number(self, number: str) -> Sequence[Handle]:
        handle = Handle(self.name, number)
        try:
            self._read_job(handle)
        except UserMistake:
            return ()
        return (handle,)

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        self._read_job(handle)
        yield from read_logs(
            lambda: self._find_logs(self._read_job(handle)),
            lambda: self.status(handle).final,
            follow=follow,
        )

    def cancel(self, handle: Handle) -> None:
        self._read_job(handle)  # raises if it does not exist
        now, done = time.time(), False
        while not done:
            self._update()  # a job whose processes are gone can no longer be canceled
            with Store(self._paths.store) as store:
                job = store.job(handle)
                if job.state in FINAL or job.cancel_requested is not None:
                    return
                changes: dict[str, Any] = {}
                if not job.in_progress:
                    changes = {"state": "cancelled", "ended": now}
                done = store.update_job(job, cancel_requested=now, reason="", **changes)
        self._update()

    def prune(self, before: float, *, limit: int = -1, dry_run: bool = False) -> int:
        if not self._paths.store.exists():
            return 0
        with Store(self._paths.store) as store:
            return prune_jobs(store, self._paths, before, limit=limit, dry_run=dry_run)

    def keep_seconds(self) -> float:
        """Return how long the records of this user's ended jobs are kept, on all engines."""
        if not self._paths.store.exists():
            return DEFAULT_KEEP_SECONDS
        with Store(self._paths.store) as store:
            return read_keep_seconds(store)

    def set_keep_seconds(self, seconds: float) -> None:
        """Set how long the records of ended jobs are kept; infinity: forever."""
        self._paths.create()
        with Store(self._paths.store) as store:
            set_keep_seconds(store, seconds)

    def policy(self) -> "Policy":
        """Return the policy by which jobs share GPUs: the machine's, or this user's on a machine whose GPUs are not shared."""
        from gpuyard.policies import get_policy

        directory = share_directory()
        if is_set_up(directory):
            rules = read_config(directory).rules
            return get_policy(rules.job_policy, explore_gpu_s=rules.explore_gpu_seconds)
        return self.own_policy() or get_policy(DEFAULT_JOB_POLICY)

    def own_policy(self) -> "Policy | None":
        """Return the policy that this user has set. It has no effect on a machine whose GPUs are shared."""
        from gpuyard.jobs.engines.local.own_policy import read_policy

        if not self._paths.store.exists():
            return None
        with Store(self._paths.store) as store:
            return read_policy(store)

    def set_policy(
        self,
        name: str,
        every_seconds: float | None = None,
        explore_gpu_seconds: float | None = None,
    ) -> None:
        """Set the policy for the jobs of all users, which only admins of the share may do.

        On a machine without a share, like the login node of a Slurm cluster, it applies to this user's jobs.
        `every_seconds` is the shortest interval between two resizes; None: the policy's own.
        """
        from gpuyard.jobs.engines.local.own_policy import write_policy
        from gpuyard.policies import get_policy
        from gpuyard.share.client import open_client

        get_policy(name, explore_gpu_s=explore_gpu_seconds)
        if not is_set_up(share_directory()):
            if every_seconds is not None:
                raise UserMistake(
                    "--every applies to the GPUs that this machine shares, and it shares none; "
                    "for jobs on Slurm: gpuyard queue rebalance --every 5min"
                )
            self._paths.create()
            with Store(self._paths.store) as store:
                write_policy(store, name, explore_gpu_seconds)
            return
        client = open_client()
        client.set_rules(
            replace(
                client.config.rules,
                job_policy=name,
                resize_seconds=every_seconds,
                explore_gpu_seconds=explore_gpu_seconds,
            ),
            client.config.rules,
        )
        client.close()

    def job(self, handle: Handle) -> Job:
        return self._read_job(handle).job

    def reports(self, handle: Handle) -> "Sequence[StepWindow]":
        return StepReports(self._paths).read_job(self._read_job(handle), completely=True)

    def rank_reports(self, handle: Handle) -> "Sequence[RankWindow]":
        stored = self._read_job(handle)
        start = self._paths.start(stored.number, max(1, stored.start_count))
        return read_rank_files(start.steps, start.log)

    def gpu_samples(self, handle: Handle) -> Sequence[GpuSample]:
        stored = self._read_job(handle)
        starts = (self._paths.start(stored.number, n) for n in range(1, stored.start_count + 1))
        return [sample for start in starts for sample in read_samples(start.gpu_samples)]

    def expected_speed(self, handle: Handle) -> ExpectedSpeed | None:
        stored = self._read_job(handle)
        curve = stored.estimate.curve if stored.has_curve else None
        if curve is None:
            return None
        gpus = stored.gpus or stored.job.spec.gpus.max
        speed = curve.speed(gpus)
        parts = curve.parts.get(gpus)
        return ExpectedSpeed(speed, speed * curve.low, speed * curve.high, parts)

    def explain(self, handle: Handle) -> "Explanation":
        from gpuyard.jobs.engines.local.explanation import explain_job

        status = self.status(handle)
        if status.final:
            raise UserMistake(f"{handle} is {status.state}: it neither waits nor runs")
        with Store(self._paths.store) as store:
            open_jobs = store.open_jobs()
        return explain_job(
            self._read_job(handle), open_jobs, self._paths, self.policy(), time.time()
        )

    def _read_job(self, handle: Handle) -> StoredJob:
        if not self._paths.store.exists():
            raise UserMistake(f"job {handle} not found; no job was submitted here yet")
        with Store(self._paths.store) as store:
            return store.job(handle)

    def _update(self) -> None:
        """Move on jobs whose processes are gone, and start a runner if jobs are open."""
        with Store(self._paths.store) as store:
            close_dead_starts(store, self._paths)
            has_open_jobs = store.has_open_jobs()
        if has_open_jobs:
            try:
                ensure_runner(self._paths)
            except GpuyardError as error:
                self._runner_error = str(error)

    def _find_logs(self, job: StoredJob) -> Sequence[Path]:
        numbers = range(1, job.start_count + 1)
        logs = (self._paths.start(job.number, number).log for number in numbers)
        return [log for log in logs if os.path.lexists(log)]  # links are listed, never followed

    def _estimate_progress(self, stored: StoredJob, reports: StepReports) -> "Progress | None":
        """Return the progress of a running job; None without reports or an estimate."""
        windows = reports.read_job(stored)
        if not windows and stored.samples is None and not stored.has_curve:
            return None
        progress = read_progress(stored, reports, time.time())
        if reports.counts_everything(windows):
            return progress
        return replace(progress, total_samples=None, expected_end=None)

    def _build_status(self, stored: StoredJob) -> JobStatus:
        job, running, loss = stored.summary, stored.state == "running", stored.loss
        progress = checkpoints = None
        if running or stored.measured_starts < stored.start_count:
            reports = StepReports(self._paths, tail_only=True)
            windows = reports.read_job(stored)
            loss = latest_loss(windows) if windows else loss
            progress = self._estimate_progress(stored, reports) if running else None
            checkpoints = describe_checkpoints(windows, stored.gpus or job.max_gpus)
        return JobStatus(
            handle=stored.handle,
            state=stored.state,
            uuid=stored.uuid,
            name=job.name,
            user=user_name(os.getuid()),
            restarts=stored.restarts,
            exit_status=stored.exit_status,
            gpus=stored.gpus if stored.state != "queued" and stored.started is not None else None,
            min_gpus=job.min_gpus,
            max_gpus=job.max_gpus,
            nodes=(os.uname().nodename,) if running else (),
            submitted=job.submitted,
            started=stored.started,
            ended=stored.ended,
            deadline=job.deadline,
            priority=job.priority,
            done=None if progress is None else progress.share,
            samples_per_second=None if progress is None else progress.samples_per_second,
            speed_basis=None if progress is None else progress.speed_basis,
            expected_end=None if progress is None else progress.expected_end,
            loss=loss,
            checkpoints=checkpoints,
            reason=(self._runner_error if stored.state == "queued" else "") or stored.reason,
            canceling=stored.cancel_requested is not None and stored.state not in FINAL,
            command=job.command,
            logs=tuple(map(str, self._find_logs(stored))),
        )


def _estimate_work(job: Job, config: ShareConfig) -> "WorkEstimate":
    from gpuyard.jobs.work_estimate import estimate_work

    kinds = {gpu.catalog for gpu in config.gpus}
    gpu = kinds.pop() if len(kinds) == 1 else None
    return estimate_work(job.spec, gpu=gpu, gpus=len(config.gpus))


def _check_program(job: Job) -> None:
    """Refuse a job whose program does not exist, unless an earlier job may create it."""
    if job.spec.after:
        return
    program = job.spec.command[0]
    search_path = job.spec.env.get("PATH", os.environ.get("PATH", os.defpath))
    directories = [""] if "/" in program else search_path.split(os.pathsep)
    candidates = [job.cwd / directory / program for directory in directories]
    # unlike pathlib, os.path takes a file in a directory that the user cannot enter for missing
    if any(os.path.isfile(path) and os.access(path, os.X_OK) for path in candidates):  # noqa: PTH113
        return
    existing = next((path for path in candidates if os.path.exists(path)), None)  # noqa: PTH110
    where = "on the PATH" if "/" not in program else f"in {job.cwd}"
    raise UserMistake(
        f"{existing} cannot be run: it is not an executable file"
        if existing
        else f"the program {program!r} was not found {where}; the command runs without a shell, so name a program "
        "first, like: gpuyard submit -- python train.py"
    )


def _read_share_config() -> ShareConfig:
    """Return the configuration of the share whose GPUs jobs get; a personal machine needs no setup."""
    try:
        shared = is_set_up(share_directory())
    except OSError as error:
        raise GpuyardError(f"{error.filename} cannot be read: {error.strerror}") from error
    if shared:
        return read_config(share_directory())
    from gpuyard.share.client import open_client

    client = open_client()
    client.close()
    return client.config


def _copy_environment() -> dict[str, str]:
    """Return this process's environment for the job, as sbatch does by default."""
    environment = dict(os.environ)
    for name in ("GPUYARD_HOME", "GPUYARD_SHARE_DIR"):  # the job may run in another directory
        if environment.get(name):
            environment[name] = str(expand_home(environment[name]).absolute())
    return environment
