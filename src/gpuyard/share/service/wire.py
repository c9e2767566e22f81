"""What goes between a client and the service: one JSON object a line each way, bounded in size, and a lease's lock
as an open file."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, NoAnswer, UserMistake
from gpuyard.share.store.lease import Lease, NoneFree
from gpuyard.share.turns.calendar import Reservation
from gpuyard.share.turns.queue import ShareState, Turn

SOCKET = "lease.socket"
MOST_REQUEST_BYTES = 65_536
_MOST_ANSWER_BYTES = 16_000_000
_PIECE_BYTES = 65_536
_TIMEOUT_SECONDS = 60.0
_ERRORS = {kind.exit_status: kind for kind in (GpuyardError, UserMistake, NoneFree)}


def call(directory: Path, operation: str, **values: object) -> tuple[Any, list[int]]:
    """Ask the service one thing; its answer, and the locks that came with it. Its errors are raised here."""
    with _connected(directory) as connection:
        try:
            send(connection, {"do": operation, **values})
            line, locks = _receive_with_locks(connection)
        except OSError as error:
            raise _silent(directory, error) from error
    if not line:
        raise _silent(directory, None)
    with understood(directory):
        answer = dict(json.loads(line))
        status = int(answer.get("status", 1))
    if "error" in answer:
        for lock in locks:
            os.close(lock)
        raise _ERRORS.get(status, GpuyardError)(str(answer["error"]))
    return answer.get("answer"), locks


@contextlib.contextmanager
def understood(directory: Path) -> Iterator[None]:
    """What this version can't read is of another: one of both was brought to a newer one."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise GpuyardError(
            f"the lease service of {directory} answers as another version of gpuyard does; ask whoever administers "
            "this machine to start it again with yours"
        ) from error


def send(connection: socket.socket, document: object, lock: int | None = None) -> None:
    """One line, with a lock beside its first byte."""
    line = json.dumps(document).encode() + b"\n"
    if lock is not None:
        sent = socket.send_fds(connection, [line], [lock])
        line = line[sent:]
    connection.sendall(line)


def receive(connection: socket.socket, most_bytes: int) -> bytes:
    """One line, or nothing where the other side has gone or said too much; open files that it sends are not taken."""
    return _received(most_bytes, lambda: connection.recv(_PIECE_BYTES))


def _receive_with_locks(connection: socket.socket) -> tuple[bytes, list[int]]:
    locks: list[int] = []

    def read() -> bytes:
        part, descriptors, _, _ = socket.recv_fds(connection, _PIECE_BYTES, 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        locks.extend(descriptors)
        return part

    return _received(_MOST_ANSWER_BYTES, read), locks


def _received(most_bytes: int, read: Callable[[], bytes]) -> bytes:
    text = b""
    while not text.endswith(b"\n"):
        part = read()
        text += part
        if not part or len(text) > most_bytes:
            return b""
    return text


def read_turn(document: dict[str, Any]) -> Turn:
    lease = Lease.from_document(document["lease"])
    return Turn(lease, document["position"], document["expected_seconds"], document["reason"])


def read_state(document: dict[str, Any]) -> ShareState:
    return ShareState(
        tuple(Lease.from_document(lease) for lease in document["held"]),
        tuple(Lease.from_document(lease) for lease in document["waiting"]),
        tuple(Reservation.from_document(one) for one in document["reservations"]),
    )


def written(answer: object) -> Any:
    """A value of the operations as JSON has it."""
    if isinstance(answer, list):
        return [written(one) for one in answer]
    if isinstance(answer, Turn | ShareState | Lease | Reservation):
        return asdict(answer)
    return answer


@contextlib.contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """The socket's name, short enough for the kernel (107 bytes) wherever the directory is."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


@contextlib.contextmanager
def _connected(directory: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        try:
            with socket_path(directory) as path:
                connection.connect(path)
        except OSError as error:
            raise _silent(directory, error) from error
        yield connection


def _silent(directory: Path, error: OSError | None) -> NoAnswer:
    why = f" ({error.strerror or error})" if error else ""
    return NoAnswer(
        f"the lease service of {directory} does not answer{why}; ask whoever administers this machine to "
        "run: gpuyard share serve. Running work is not harmed"
    )
