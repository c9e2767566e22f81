"""`python -m gpuyard.jobs.engines.local.runner LOCK`: one process a user that starts jobs when it is their turn.

It has nothing that the store and the starts' files don't have: killed, it is missed only by jobs that wait. It ends when
all jobs have; every command about jobs starts it again where it is needed.
"""

import contextlib
import fcntl
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.jobs.engines.local.ending import Endings
from gpuyard.jobs.engines.local.paths import JobPaths, StartPaths
from gpuyard.jobs.engines.local.settling import settle_one
from gpuyard.jobs.engines.local.start import Order, StartView, look, prepared
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.jobs.engines.local.turns import (
    LocalJob,
    free_for_jobs,
    others_in_the_way,
    resized,
    starts,
)
from gpuyard.jobs.engines.local.views import Reports, keep_measurements, view_of
from gpuyard.jobs.job import FINAL, Handle
from gpuyard.jobs.log_files import open_log
from gpuyard.jobs.policies import Policy, policy_of
from gpuyard.jobs.torchrun import torchrun_line
from gpuyard.run.process import Command, start_apart
from gpuyard.share.service.desk import open_desk
from gpuyard.share.store.config import share_directory
from gpuyard.share.watch.processes import VARIABLE
from gpuyard.steps.reporter import FILE_VARIABLE
from gpuyard.temporary import sweep

DEFAULT_POLICY = "fifo"
_MODULE = "gpuyard.jobs.engines.local.runner"
_LOOK_SECONDS = 0.25
_IDLE_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
_LONGEST_TITLE = 200  # characters, for `gpuyard who`; a name may be a page
_AFTER_ERROR_SECONDS = 1.0


def ensure_runner(paths: JobPaths) -> bool:
    """Start one unless there is one; True: it was started now."""
    paths.make()
    try:
        return _start_runner(paths)
    except (OSError, GpuyardError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise GpuyardError(
            f"the jobs' runner can't be started: {said}; jobs wait until it can"
        ) from error


def _start_runner(paths: JobPaths) -> bool:
    lock = os.open(paths.runner_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        log = open_log(paths.runner_log)
        try:
            # the lock goes over to it: there is no moment in which a second one could start
            environment = {
                **import_path(),
                VARIABLE: "",
                "GPUYARD_HOME": str(files.home().absolute()),
                "GPUYARD_SHARE_DIR": str(share_directory()),
            }
            argv = (*module_argv(_MODULE), str(paths.directory), str(lock))
            start_apart(Command("here", argv, environment), output=log, kept=(lock,))
        finally:
            os.close(log)
    finally:
        os.close(lock)
    return True


def policy_set(store: Store) -> Policy:
    """By which the user's jobs share GPUs."""
    name = store.setting("policy") or DEFAULT_POLICY
    return policy_of(name, explore_gpu_s=store.seconds_set("explore"))


class Runner:
    """The loop; `look` is one round of it."""

    def __init__(self, paths: JobPaths, store: Store) -> None:
        self._paths = paths
        self._store = store
        self._reports = Reports(paths)
        self._resized_at: float | None = None
        self._endings = Endings(paths)
        self._seen: tuple[object, ...] = ()
        self._decided_at = -math.inf

    def look(self) -> bool:
        """Bring everything up to date and start what can be; False: there is nothing left to do."""
        rows = self._store.open_rows()
        views = {}
        for row in rows:
            if row.in_progress:
                views[row.number] = look(self._paths.start(row.number, row.starts))
                settle_one(self._store, row, views[row.number])
        rows = self._store.open_rows()
        for row in rows:
            if row.number in views and row.in_progress:
                self._endings.look(row, views[row.number])
        waiting = [row for row in rows if not row.in_progress and self._may_start(row)]
        started = [row for row in rows if row.in_progress]
        resizes = self._may_resize(started)
        if resizes or (waiting and self._is_new(rows)):
            try:
                self._decide(waiting, started, views, resizes=resizes)
            except (
                GpuyardError
            ) as error:  # a lease service that does not answer, a policy that can't decide
                for row in waiting:
                    if row.reason != str(error):
                        self._store.change(row, reason=str(error))
                raise
        for row in self._store.unmeasured_rows():
            self._store.note_measured(row, row.finished_starts)
            for number in range(row.measured + 1, row.finished_starts + 1):
                sweep(self._paths.start(row.number, number).directory)
            keep_measurements(row, self._reports)
        return bool(rows)

    def _is_new(self, rows: Sequence[StoredJob]) -> bool:
        """Whether jobs have changed since the last decision; what others do is looked at now and then."""
        seen = tuple((row.number, row.state, row.starts, row.gpus) for row in rows)
        if seen == self._seen and time.monotonic() - self._decided_at < _AGAIN_SECONDS:
            return False
        self._seen, self._decided_at = seen, time.monotonic()
        return True

    def _may_start(self, row: StoredJob) -> bool:
        """Whether the jobs that it comes after have succeeded; where one can't any more, it won't start."""
        for text in row.job.spec.after:
            before = self._store.row(Handle.parse(text))
            if before.state == "succeeded":
                continue
            if before.state in FINAL:
                reason = f"comes after {text}, which is {before.state}"
                self._store.change(row, state="cancelled", ended=time.time(), reason=reason)
            elif row.reason != (reason := f"comes after {text}"):
                self._store.change(row, reason=reason)
            return False
        return True

    def _may_resize(self, started: Sequence[StoredJob]) -> bool:
        """Now and then, where the policy is one that changes what running jobs have."""
        round_s = self._store.seconds_set("every") or self._policy().round_s
        if round_s is None or not any(row.job.spec.checkpoint for row in started):
            return False
        if self._resized_at is not None and time.monotonic() - self._resized_at < round_s:
            return False
        self._resized_at = time.monotonic()
        return all(row.stopping is None for row in started)

    def _policy(self) -> Policy:
        return policy_set(self._store)

    def _decide(
        self,
        waiting: Sequence[StoredJob],
        started: Sequence[StoredJob],
        views: dict[int, StartView],
        *,
        resizes: bool,
    ) -> None:
        desk, now = open_desk(), time.time()
        try:
            state, total = desk.state(), len(desk.config.gpus)
            indices = desk.config.indices
        finally:
            desk.close()
        leases = {row.number: _lease_of(views.get(row.number)) for row in started}
        ours = frozenset(filter(None, leases.values())) | _waiting_leases(views)
        jobs = [
            LocalJob(
                row.number,
                view_of(row, self._reports, total, now),
                row.in_progress and not leases[row.number],
            )
            for row in (*started, *waiting)
        ]
        policy, free = self._policy(), free_for_jobs(state, indices, ours)
        if resizes:
            for number, gpus in resized(jobs, policy, free=free, now_s=now).items():
                self._stop_to_resize(next(row for row in started if row.number == number), gpus)
        chosen = starts(
            jobs,
            policy,
            free=free,
            total=total,
            contended=others_in_the_way(state, ours),
            now_s=now,
        )
        for row in waiting:
            if row.number in chosen:
                self.start_one(row, chosen[row.number])

    def _stop_to_resize(self, row: StoredJob, gpus: int) -> None:
        why = "was stopped to let others go on"
        if gpus:
            why = f"was stopped to go on with {gpus} GPUs instead of {row.gpus}"
        self._store.change(row, stopping=why)

    def start_one(self, row: StoredJob, gpus: int) -> None:
        """On so many GPUs, unless somebody has cancelled it meanwhile."""
        start = self._paths.start(row.number, row.starts + 1)
        shutil.rmtree(start.directory, ignore_errors=True)  # of a runner that was killed right here
        with prepared(start, order_of(row, self._store.environment(row), gpus, start)) as set_off:
            if self._store.change(row, starts=row.starts + 1, gpus=gpus):
                set_off()
                return
        shutil.rmtree(start.directory)


def order_of(row: StoredJob, environment: dict[str, str], gpus: int, start: StartPaths) -> Order:
    """Exactly what runs."""
    job = row.job
    reports = {FILE_VARIABLE: str(start.steps)}
    return Order(
        argv=torchrun_line(job.spec.command, gpus_per_node=gpus),
        environment={**environment, **reports, **job.environment(gpus)},
        cwd=str(job.cwd),
        gpus=gpus,
        seconds=job.spec.time_limit,
        project=job.spec.project,
        title=f"{row.handle} {' '.join(job.name.split())}"[:_LONGEST_TITLE],
    )


def _lease_of(view: StartView | None) -> str:
    return view.progress.lease if view is not None and view.progress is not None else ""


def _waiting_leases(views: dict[int, StartView]) -> frozenset[str]:
    return frozenset(
        view.progress.place
        for view in views.values()
        if view.progress is not None and view.progress.place
    )


def main() -> None:
    paths, lock = JobPaths(Path(sys.argv[1])), int(sys.argv[2])
    os.chdir("/")
    os.set_inheritable(lock, False)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    with Store(paths.store) as store:
        runner = Runner(paths, store)
        while True:
            _serve(runner, paths)
            # a job that came after the last look has seen our lock, and starts no other runner
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not store.open_rows():
                return
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # there is another one now


def _serve(runner: Runner, paths: JobPaths) -> None:
    idle_since, said = None, ""
    while True:
        busy = True
        try:
            busy = runner.look()
        except (
            Exception
        ) as error:  # a service that is down, a full disk, a fault of ours: the rest goes on
            if not paths.store.exists():
                raise SystemExit(0) from error
            said = _note(error, said)
            time.sleep(_AFTER_ERROR_SECONDS)
        _reap()
        if busy:
            idle_since = None
        else:
            idle_since = idle_since or time.monotonic()
            if time.monotonic() - idle_since >= _IDLE_SECONDS:
                return
        time.sleep(_LOOK_SECONDS)


def _note(error: Exception, before: str) -> str:
    """In the log, once: what does not pass would fill it."""
    import traceback

    said = str(error) if isinstance(error, GpuyardError) else traceback.format_exc()
    if said != before:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {said}\n")
            sys.stderr.flush()
    return said


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
