"""Notebooks: started on a lease, looked after while they run, listed and stopped."""

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.share.launcher import run_leased
from gpuyard.share.notebook import jupyter
from gpuyard.share.notebook.jupyter import JupyterServer
from gpuyard.share.notebook.records import Notebook, records, remove_record, write_record
from gpuyard.share.service.caller import user_name
from gpuyard.share.service.desk import Desk
from gpuyard.share.store.clock import Clock, stamp
from gpuyard.share.store.lease import Lease, LeaseRequest
from gpuyard.share.turns.queue import Turn
from gpuyard.share.turns.waiting import wait_for_lease
from gpuyard.share.watch import processes

_CONFIG_PATH = "JUPYTER_CONFIG_PATH"
_READY_SECONDS = 120.0
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True)
class NotebookCallbacks:
    """What a notebook says while it starts, runs and ends."""

    waiting: Callable[[Turn], None]
    ready: Callable[[Notebook], None]
    sentence: Callable[[str], None]


def run_notebook(
    desk: Desk,
    request: LeaseRequest,
    *,
    directory: Path,
    environment: str | None,
    idle_seconds: float | None,
    wait_seconds: float | None,
    callbacks: NotebookCallbacks,
) -> int:
    """Wait for GPUs and run it to its end; Jupyter's exit status."""
    if desk.config.scheduler == "slurm":
        raise UserMistake(
            "Slurm gives these GPUs out now; use: gpuyard lease 1 -- jupyter lab --no-browser"
        )
    command = jupyter.jupyter_command(environment)
    sweep(desk)
    lease, lock = wait_for_lease(desk, request, wait_seconds, callbacks.waiting)
    port, token = _free_port(), secrets.token_urlsafe(32)
    notebook = Notebook(
        id=lease.id,
        port=port,
        token=token,
        directory=str(directory),
        gpus=lease.gpus,
        until=_until(lease),
        user=user_name(os.getuid()),
        host=socket.gethostname(),
    )
    private = write_record(notebook, jupyter.configuration(token))
    others = os.environ.get(_CONFIG_PATH)
    os.environ[_CONFIG_PATH] = f"{private}:{others}" if others else str(private)
    if environment is not None:  # kernels and terminals find its programs first
        os.environ["PATH"] = f"{Path(command[0]).parent}:{os.environ.get('PATH', os.defpath)}"
    status = os.fstat(lock)
    watch = NotebookWatch(
        jupyter.JupyterServer(port, token),
        lease.id,
        (status.st_dev, status.st_ino),
        idle_seconds,
        desk.config.grace_seconds,
        lambda: callbacks.ready(notebook),
        callbacks.sentence,
    )
    watch.start()
    try:
        return run_leased(desk, lease, lock, [*command, *jupyter.options(port, directory)])
    finally:
        watch.end()
        remove_record(lease.id)


def running(desk: Desk) -> list[Notebook]:
    """This user's, whose leases are held; until when may have changed by a reservation."""
    held = {lease.id: lease for lease in desk.state().held if lease.uid == os.getuid()}
    return [
        replace(notebook, until=_until(held[notebook.id]))
        for notebook in records()
        if notebook.id in held
    ]


def stop(desk: Desk, id_: str) -> Notebook:
    """End one and give its GPUs back; its files stay."""
    found = next((notebook for notebook in running(desk) if notebook.id == id_), None)
    if found is None:
        raise UserMistake(f"you have no notebook {id_!r}; `gpuyard notebook list` shows yours")
    desk.release(id_)
    remove_record(id_)
    return found


def sweep(desk: Desk) -> None:
    """Tokens of what was killed are worth nothing, and go."""
    living = {notebook.id for notebook in running(desk)}
    for notebook in records():
        if notebook.id not in living:
            remove_record(notebook.id)


def _until(lease: Lease) -> str | None:
    return stamp(None if lease.until_boot is None else Clock().wall_at(lease.until_boot))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class NotebookWatch:
    """A thread beside the launcher, which waits for signals itself."""

    server: JupyterServer
    lease: str
    lock: tuple[int, int]
    idle_seconds: float | None
    grace_seconds: float
    ready: Callable[[], None]
    say: Callable[[str], None]
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """All signals stay the launcher's."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._run, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """The command has ended."""
        self._over.set()

    def _run(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self.server.status() is None:
            if time.monotonic() > deadline:
                self.say(f"Jupyter has not answered for {_READY_SECONDS:.0f} s; it is ended")
                self._stop()
                return
            if self._over.wait(0.2):
                return
        if self.server.is_open():
            self.say(
                "this Jupyter answers without its token, so everybody here could use it; ended"
            )
            self._stop()
            return
        self.ready()
        if self.idle_seconds is not None:
            self._until_idle(self.idle_seconds)

    def _until_idle(self, idle_seconds: float) -> None:
        pause = min(_LONGEST_PAUSE_SECONDS, max(0.1, idle_seconds / 10))
        active_at, last = time.monotonic(), None
        while not self._over.wait(pause):
            status = self.server.status()
            if status is None:
                continue  # too busy to answer, or about to end
            if status.get("last_activity") != last:
                last, active_at = status.get("last_activity"), time.monotonic()
            elif time.monotonic() - active_at >= idle_seconds:
                if self.server.is_busy():
                    active_at = time.monotonic()
                    continue
                from gpuyard.units import format_seconds

                self.say(
                    f"no kernel of notebook {self.lease} was busy for {format_seconds(idle_seconds)}; "
                    "its GPUs are given back, its files stay"
                )
                self._stop()
                return

    def _stop(self) -> None:
        """Jupyter ends its kernels itself; what is left after the grace is ended."""
        os.kill(os.getpid(), signal.SIGTERM)  # the launcher passes it on
        if not self._over.wait(self.grace_seconds):
            marks = processes.Marks(self.lease, os.getuid(), self.lock)
            processes.stop([marks], self.grace_seconds)
