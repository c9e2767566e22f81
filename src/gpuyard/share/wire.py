"""The protocol between clients and the service: one JSON object per line and direction, limited in size. The lock of a
lease travels as an open file."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, NoResponse, UserMistake
from gpuyard.share.models import NoneFree

SOCKET = "lease.socket"
MAX_REQUEST_BYTES = 65_536
_MAX_ANSWER_BYTES = 16_000_000
_CHUNK_BYTES = 65_536
_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 0.5
_ERRORS = {kind.exit_status: kind for kind in (GpuyardError, UserMistake, NoneFree)}


def call_patiently(
    directory: Path,
    operation: str,
    *,
    patience_seconds: float,
    is_repeatable: bool,
    **arguments: object,
) -> tuple[Any, list[int]]:
    """Call an operation, and try again for a while if the service is away.

    A request that was sent may have taken effect, so only a repeatable one is sent again.
    """
    deadline = time.monotonic() + patience_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return call(directory, operation, **arguments)
        except NoResponse as error:
            is_final = error.sent and not is_repeatable
            if is_final or time.monotonic() + pause >= deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def call(directory: Path, operation: str, **arguments: object) -> tuple[Any, list[int]]:
    """Call an operation of the service. Return its answer and the locks that came with it, or raise its error."""
    with _connect(directory) as connection:
        try:
            with contextlib.suppress(
                BrokenPipeError
            ):  # the service may explain why it did not read
                connection.sendall(encode_line({"do": operation, **encode(arguments)}))
            line, locks = _receive_with_locks(connection)
        except OSError as error:
            raise _no_answer(directory, error) from error
    if not line:
        raise _no_answer(directory, None)
    with expect_same_version(directory):
        answer = dict(json.loads(line))
        status = int(answer.get("status", 1))
    if "error" in answer:
        for lock in locks:
            os.close(lock)
        if answer.get("busy") is True:
            raise NoResponse(str(answer["error"]), sent=False)
        raise _ERRORS.get(status, GpuyardError)(str(answer["error"]))
    return answer.get("answer"), locks


@contextlib.contextmanager
def expect_same_version(directory: Path) -> Iterator[None]:
    """Report an answer that cannot be decoded as one of another version: client or service was upgraded."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise other_version(directory) from error


def other_version(directory: Path) -> GpuyardError:
    return GpuyardError(
        f"the lease service of {directory} runs another version of gpuyard; ask the administrator of this "
        "machine to run: gpuyard share restart"
    )


def encode(value: Any) -> Any:
    """Convert an argument or result of an operation to JSON values."""
    if isinstance(value, dict):
        return {name: encode(part) for name, part in value.items()}
    if isinstance(value, list):
        return [encode(part) for part in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def encode_line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _receive_with_locks(connection: socket.socket) -> tuple[bytes, list[int]]:
    locks: list[int] = []

    def read() -> bytes:
        chunk, descriptors, _, _ = socket.recv_fds(connection, _CHUNK_BYTES, 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        locks.extend(descriptors)
        return chunk

    return _read_line(_MAX_ANSWER_BYTES, read), locks


def _read_line(max_bytes: int, read: Callable[[], bytes]) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = read()
        line += chunk
        if not chunk or len(line) > max_bytes:
            return b""
    return line


@contextlib.contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """Yield a path of the socket that fits into the kernel's limit of 107 bytes, wherever the directory is."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


@contextlib.contextmanager
def _connect(directory: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        try:
            with socket_path(directory) as path:
                connection.connect(path)
        except OSError as error:
            raise _no_answer(directory, error, sent=False) from error
        yield connection


def _no_answer(directory: Path, error: OSError | None, *, sent: bool = True) -> NoResponse:
    reason = f" ({error.strerror or error})" if error else ""
    return NoResponse(
        f"the lease service of {directory} does not answer{reason}; ask the administrator of this machine to "
        "run: gpuyard share restart. Running work continues",
        sent=sent,
    )
