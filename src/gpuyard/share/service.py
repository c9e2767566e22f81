"""The service of a share with several users. It owns the store, and performs operations for callers whom the kernel
identifies. It keeps no state, so it can be killed and started again at any time."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake, quote
from gpuyard.files import write_text
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start_detached
from gpuyard.share import wire
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller, read_peer
from gpuyard.share.client import OPERATIONS
from gpuyard.share.config import MACHINE_DIRECTORY
from gpuyard.share.connections import ConnectionServer
from gpuyard.share.fair_share import PastUse
from gpuyard.share.gpus import gpu_source, utilization_by_gpu
from gpuyard.share.models import decode_values
from gpuyard.share.store import DATABASE, close_to_others
from gpuyard.share.wire import SOCKET

_CHECK_SECONDS = 2.0
_SAMPLE_SECONDS = 60.0
_LOCK = "service.lock"

_UNIT = Path("/etc/systemd/system/gpuyard-share.service")
_SYSTEMD_RUNS = Path("/run/systemd/system")
_LOG = "service.log"
_START_SECONDS = 60.0  # it imports modules, which takes long on a busy machine
_STOP_SECONDS = 10.0
_SERVE = (*module_argv("gpuyard"), "share", "serve")


def serve(directory: Path, on_ready: Callable[[], None] = lambda: None) -> None:
    """Answer until the socket is removed; raise GpuyardError if another service is running."""
    # numpy's OpenBLAS interrupts the process if it cannot start its threads, and decisions need none
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with (
        _hold_service_lock(directory),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
    ):
        (directory / SOCKET).unlink(missing_ok=True)
        with wire.socket_path(directory) as path:
            listening.bind(path)
        (directory / SOCKET).chmod(0o666)  # each operation checks its caller's rights
        listening.listen(512)
        identity = _socket_identity(directory)
        close_to_others(directory / DATABASE)
        # opened now to report a bad store, and kept open so that SQLite does not fold in its log at each close
        broker = Broker(directory)
        broker.expect_clients()
        on_ready()
        with contextlib.suppress(RuntimeError):  # without it, requests end overdue leases
            threading.Thread(target=_end_overdue_leases, args=(directory,), daemon=True).start()
        connections = ConnectionServer(listening, RequestHandler(directory).respond)
        last_sample = 0.0
        while _socket_identity(directory) == identity:
            if time.monotonic() - last_sample >= _SAMPLE_SECONDS:
                last_sample = time.monotonic()
                # the next caller gets the same error; reading the GPUs may start a program
                with contextlib.suppress(GpuyardError, OSError):
                    reopened = Broker(directory)  # the store may have been replaced
                    broker.close()
                    broker = reopened
                    readings = gpu_source(directory, broker.store.config).read()
                    broker.record_utilization(utilization_by_gpu(readings))
                    broker.prune_history()
            connections.poll(_CHECK_SECONDS)
        connections.close()
        broker.close()


def _end_overdue_leases(directory: Path) -> None:
    while True:
        time.sleep(_CHECK_SECONDS)
        try:
            with contextlib.closing(Broker(directory)) as broker:
                broker.end_overdue()
        except (GpuyardError, OSError) as error:  # the next caller gets the same error
            sys.stderr.write(f"gpuyard: leases over their time cannot be ended: {error}\n")


def is_running(directory: Path) -> bool:
    """Return whether a service answers."""
    try:
        wire.call(directory, "state")
    except GpuyardError:
        return False
    return True


class RequestHandler:
    """Performs requests in any thread, each with a broker of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._past_use = PastUse()

    def respond(self, caller: Caller, line: bytes) -> tuple[object, int | None]:
        """Return the answer or the error, and the lock that belongs to the answer."""
        try:
            request = parse_request(line)
            with contextlib.closing(
                Broker(self._directory, caller, past_use=self._past_use)
            ) as broker:
                answer, lock = perform(broker, request)
            return {"answer": wire.encode(answer)}, lock
        except GpuyardError as error:
            return {"error": str(error), "status": error.exit_status}, None
        except Exception as error:  # noqa: BLE001 - one caller's fault must not stop the service
            with contextlib.suppress(OSError):  # the disk may be full
                sys.stderr.write(f"gpuyard: {type(error).__name__}: {error}\n")
            return {"error": "the lease service failed; its log has the reason", "status": 1}, None


def parse_request(line: bytes) -> dict[str, Any]:
    """Parse a line that any user may have sent."""
    try:
        document = json.loads(line)
        json.dumps(document, ensure_ascii=False).encode()  # SQLite cannot store lone surrogates
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UserMistake(
            f"a request must be one JSON object on one line of up to {wire.MAX_REQUEST_BYTES:,} bytes"
        )
    return document


def perform(broker: Broker, document: dict[str, Any]) -> tuple[object, int | None]:
    """Decode a request and run its operation; return the result and the lock that belongs to it."""
    name = document.get("do")
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise UserMistake("this version of gpuyard does not know this operation")
    unknown = document.keys() - {"do", *operation.arguments}
    if unknown:
        raise UserMistake(
            f"this version of gpuyard does not know {quote(min(unknown))} in a request to {operation.name}"
        )
    arguments = decode_values(operation.arguments, document)
    result = operation.bind(broker)(**arguments)
    return result if operation.sends_lock else (result, None)


@contextlib.contextmanager
def _hold_service_lock(directory: Path) -> Iterator[None]:
    handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GpuyardError(f"a lease service is already running in {directory}") from None
        yield
    finally:
        os.close(handle)


def _socket_identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = (directory / SOCKET).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def restart_service(directory: Path) -> str:
    """Start the service so that it outlives this command, and stop one that runs older code; return how it runs.

    The service keeps no state, and clients wait while it restarts.
    """
    _stop_service(directory)
    if directory == MACHINE_DIRECTORY and _SYSTEMD_RUNS.is_dir():
        write_text(_UNIT, _unit_text(directory), mode=0o644)
        for command in (("daemon-reload",), ("enable", _UNIT.name), ("restart", _UNIT.name)):
            subprocess.run(("systemctl", *command), check=False)  # noqa: S607 - root's own path
        how = f"systemd runs the lease service ({_UNIT.name})."
    else:
        _start_process(directory)
        how = "The lease service runs in the background until the machine restarts."
    if not _wait_until(lambda: is_running(directory), _START_SECONDS):
        raise GpuyardError(
            f"the lease service did not start; see {directory / _LOG} or `systemctl status`"
        )
    return how


def _stop_service(directory: Path) -> None:
    """Terminate the service that listens on the socket, if there is one, and wait until it has ended."""
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        with wire.socket_path(directory) as path:
            connection.connect(path)
        handle = os.pidfd_open(read_peer(connection).pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not select.select([handle], [], [], _STOP_SECONDS)[0]:  # readable once it has ended
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    if not _wait_until(lambda: _is_unlocked(directory), _STOP_SECONDS):
        raise GpuyardError(
            f"the lease service of {directory} cannot be stopped; see which process has {_LOCK} open"
        )


def _is_unlocked(directory: Path) -> bool:
    with contextlib.suppress(GpuyardError), _hold_service_lock(directory):
        return True
    return False


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _unit_text(directory: Path) -> str:
    return f"""[Unit]
Description=gpuyard: leases of this machine's GPUs

[Service]
Environment=GPUYARD_SHARE_DIR={directory}
ExecStart={" ".join(_SERVE)}
Restart=always
RestartSec=1
# leased commands are processes of their users and must not stop with the service
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def _start_process(directory: Path) -> None:
    environment = {**import_path(), "GPUYARD_SHARE_DIR": str(directory)}
    log = os.open(
        directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode=0o600
    )
    try:
        start_detached(Command("here", _SERVE, environment), output=log)
    finally:
        os.close(log)
