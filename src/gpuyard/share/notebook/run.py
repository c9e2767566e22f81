"""Start notebooks on leases, watch them while they run, and list and stop them."""

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
from gpuyard.loopback_port import PortRelay, start_thread
from gpuyard.share.caller import user_name
from gpuyard.share.client import Client
from gpuyard.share.clock import Clock, iso_timestamp
from gpuyard.share.launcher import run_leased, wait_for_lease
from gpuyard.share.models import Lease, LeaseRequest, QueueStatus
from gpuyard.share.notebook import jupyter
from gpuyard.share.notebook.jupyter import JupyterServer
from gpuyard.share.notebook.records import Notebook, read_records, remove_record, write_record
from gpuyard.share.processes import ProcessMatcher, identify_file, stop_processes
from gpuyard.temporary import shared_directory, temporary_directory

_CONFIG_PATH = "JUPYTER_CONFIG_PATH"
_READY_SECONDS = 120.0
_MAX_PAUSE_SECONDS = 30.0


@dataclass(frozen=True)
class NotebookCallbacks:
    """Functions that are called while a notebook waits, when it is ready, and with its messages."""

    on_waiting: Callable[[QueueStatus], None]
    on_ready: Callable[[Notebook], None]
    on_message: Callable[[str], None]


def run_notebook(
    client: Client,
    request: LeaseRequest,
    *,
    directory: Path,
    environment: str | None,
    idle_seconds: float | None,
    wait_seconds: float | None,
    callbacks: NotebookCallbacks,
) -> int:
    """Wait for GPUs, run Jupyter until it ends, and return its exit status."""
    if client.config.scheduler == "slurm":
        raise UserMistake(
            "Slurm hands out these GPUs now; use: gpuyard lease 1 -- jupyter lab --no-browser"
        )
    command = jupyter.find_command(environment)
    remove_stale_records(client)
    lease, lock = wait_for_lease(client, request, wait_seconds, callbacks.on_waiting)
    if environment is not None:  # kernels and terminals must find its programs first
        os.environ["PATH"] = f"{Path(command[0]).parent}:{os.environ.get('PATH', os.defpath)}"
    with temporary_directory(shared_directory(), "notebook") as socket_directory:
        socket_path = socket_directory / "jupyter.sock"
        relay, token = PortRelay(socket_path), secrets.token_urlsafe(32)
        notebook = Notebook(
            id=lease.id,
            port=relay.port,
            token=token,
            directory=str(directory),
            gpus=lease.gpus,
            until=_format_end(lease),
            user=user_name(os.getuid()),
            host=socket.gethostname(),
        )
        private = write_record(notebook, jupyter.format_configuration(token))
        config_path = os.environ.get(_CONFIG_PATH)
        os.environ[_CONFIG_PATH] = f"{private}:{config_path}" if config_path else str(private)
        watch = NotebookWatch(
            JupyterServer(socket_path, token),
            lease.id,
            identify_file(lock),
            idle_seconds,
            client.config.grace_seconds,
            lambda: callbacks.on_ready(notebook),
            callbacks.on_message,
        )
        relay.start()
        watch.start()
        try:
            options = jupyter.format_options(socket_path, directory)
            return run_leased(client, lease, lock, [*command, *options])
        finally:
            watch.finish()
            remove_record(lease.id)


def list_running(client: Client) -> list[Notebook]:
    """Return this user's notebooks whose leases are held, with ends that a reservation may have changed."""
    held = {lease.id: lease for lease in client.state().held if lease.uid == os.getuid()}
    return [
        replace(notebook, until=_format_end(held[notebook.id]))
        for notebook in read_records()
        if notebook.id in held
    ]


def stop_notebook(client: Client, id_: str) -> Notebook:
    """Stop a notebook and give its GPUs back; its files stay."""
    notebook = next((notebook for notebook in list_running(client) if notebook.id == id_), None)
    if notebook is None:
        raise UserMistake(f"notebook {id_!r} not found; `gpuyard notebook list` lists yours")
    client.release(id_)
    remove_record(id_)
    return notebook


def remove_stale_records(client: Client) -> None:
    """Delete the records of notebooks that were killed, and so their tokens."""
    running = {notebook.id for notebook in list_running(client)}
    for notebook in read_records():
        if notebook.id not in running:
            remove_record(notebook.id)


def _format_end(lease: Lease) -> str | None:
    return iso_timestamp(None if lease.until_boot is None else Clock().wall_at(lease.until_boot))


@dataclass
class NotebookWatch:
    """A thread that watches the server, while the launcher waits for signals."""

    server: JupyterServer
    lease_id: str
    lock: tuple[int, int]
    """Device and inode: the launcher may close the descriptor before this thread ends."""
    idle_seconds: float | None
    grace_seconds: float
    on_ready: Callable[[], None]
    on_message: Callable[[str], None]
    _finished: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start the thread; the launcher gets all signals."""
        start_thread(self._run)

    def finish(self) -> None:
        """Stop watching, because Jupyter has ended."""
        self._finished.set()

    def _run(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self.server.status() is None:
            if time.monotonic() > deadline:
                self.on_message(
                    f"Jupyter has not answered for {_READY_SECONDS:.0f} s; gpuyard stops it"
                )
                self._stop()
                return
            if self._finished.wait(0.2):
                return
        if self.server.is_open():
            self.on_message(
                "this Jupyter answers without its token, so every user of this machine could use it; "
                "gpuyard stops it"
            )
            self._stop()
            return
        self.on_ready()
        if self.idle_seconds is not None:
            self._stop_when_idle(self.idle_seconds)

    def _stop_when_idle(self, idle_seconds: float) -> None:
        pause = min(_MAX_PAUSE_SECONDS, max(0.1, idle_seconds / 10))
        active_at, last_activity = time.monotonic(), None
        while not self._finished.wait(pause):
            status = self.server.status()
            if status is None:
                continue  # too busy to answer, or about to exit
            if status.get("last_activity") != last_activity:
                last_activity, active_at = status.get("last_activity"), time.monotonic()
            elif time.monotonic() - active_at >= idle_seconds:
                if self.server.is_busy():
                    active_at = time.monotonic()
                    continue
                from gpuyard.units import format_seconds

                self.on_message(
                    f"no kernel of notebook {self.lease_id} was busy for {format_seconds(idle_seconds)}; "
                    "gpuyard gives its GPUs back, and its files stay"
                )
                self._stop()
                return

    def _stop(self) -> None:
        """Let Jupyter stop its kernels itself, and stop what remains after the grace period."""
        os.kill(os.getpid(), signal.SIGTERM)  # the launcher forwards it
        if not self._finished.wait(self.grace_seconds):
            matcher = ProcessMatcher(self.lease_id, os.getuid(), self.lock)
            stop_processes([matcher], self.grace_seconds)
