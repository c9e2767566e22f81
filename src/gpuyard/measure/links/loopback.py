"""Times TCP between two processes of this host over 127.0.0.1, which carries gradients if there is no GPU.

The other process runs this module with `python -m`. It connects back, sends a secret that only its parent knows,
receives or sends the requested bytes, and exits when the connection is closed.
"""

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread
from time import monotonic, perf_counter

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv

MAX_BYTES = 4 * 10**9
_HOST = "127.0.0.1"
_SECRET_BYTES = 16
_REQUEST = struct.Struct("!?Q")  # both ways?, bytes in each direction
_DONE = b"."
_CHUNK_BYTES = 2**20
_EXIT_SECONDS = 5.0


class Loopback:
    """A connection to the other process that times exchanges."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def time_exchange(self, size_bytes: int, *, both_ways: bool) -> float:
        """Send this many bytes, and receive as many at once if `both_ways`, until both sides have all."""
        start = perf_counter()
        self._connection.sendall(_REQUEST.pack(both_ways, size_bytes))
        _exchange(self._connection, size_bytes, sends=True, receives=both_ways)
        if self._connection.recv(len(_DONE)) != _DONE:
            raise _describe_closed()
        return perf_counter() - start


@contextlib.contextmanager
def open_loopback(*, budget_seconds: float = 120.0) -> Iterator[Loopback]:
    """Start the other process, and stop it at the end. No single wait is longer than the budget."""
    secret = secrets.token_bytes(_SECRET_BYTES)
    with socket.create_server((_HOST, 0), backlog=1) as listener:
        process = _start(listener.getsockname()[1], secret, budget_seconds)
        try:
            with _accept(listener, secret, process, budget_seconds) as connection:
                _configure(connection, budget_seconds)
                yield Loopback(connection)
        except OSError as error:
            raise GpuyardError(
                f"the loopback bench failed: {error}; check that this user's processes can connect "
                "to 127.0.0.1"
            ) from error
        finally:
            _stop(process)


def time_loopback(
    size_bytes: int, repeats: int, *, both_ways: bool, budget_seconds: float = 120.0
) -> list[float]:
    """Time the repeats, after one untimed exchange that opens the TCP window."""
    if not 0 < size_bytes <= MAX_BYTES:
        raise ValueError(f"{size_bytes} bytes are not between 1 and {MAX_BYTES}")
    deadline = monotonic() + budget_seconds
    with open_loopback(budget_seconds=budget_seconds) as loopback:
        loopback.time_exchange(size_bytes, both_ways=both_ways)
        seconds: list[float] = []
        for _ in range(repeats):
            if seconds and monotonic() > deadline:
                break
            seconds.append(loopback.time_exchange(size_bytes, both_ways=both_ways))
    return seconds


def _start(port: int, secret: bytes, budget_seconds: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*module_argv("gpuyard.measure.links.loopback"), str(port), str(budget_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C stops the bench, which then stops this process
        env={**os.environ, **import_path()},
    )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(secret)
    return process


def _accept(
    listener: socket.socket,
    secret: bytes,
    process: subprocess.Popen[bytes],
    budget_seconds: float,
) -> socket.socket:
    """Accept the first connection that knows the secret; other local processes may connect too."""
    listener.settimeout(0.2)
    deadline = monotonic() + min(budget_seconds, 60.0)
    while monotonic() < deadline:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if process.poll() is not None:
                raise ConnectionError(
                    f"the other process exited with status {process.returncode}"
                ) from None
            continue
        connection.settimeout(_EXIT_SECONDS)
        with contextlib.suppress(OSError):
            if secrets.compare_digest(_receive(connection, _SECRET_BYTES), secret):
                return connection
        connection.close()
    raise TimeoutError("the other process did not connect")


def _configure(connection: socket.socket, budget_seconds: float) -> None:
    connection.settimeout(budget_seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _exchange(connection: socket.socket, size_bytes: int, *, sends: bool, receives: bool) -> None:
    if not (sends and receives):
        (_send if sends else _drain)(connection, size_bytes)
        return
    failures: list[OSError] = []

    def send() -> None:
        try:
            _send(connection, size_bytes)
        except OSError as error:
            failures.append(error)

    sender = Thread(target=send, daemon=True)
    sender.start()
    _drain(connection, size_bytes)
    sender.join()
    if failures:
        raise failures[0]


def _send(connection: socket.socket, size_bytes: int) -> None:
    chunk = memoryview(bytes(_CHUNK_BYTES))
    remaining = size_bytes
    while remaining:
        remaining -= connection.send(chunk[: min(remaining, _CHUNK_BYTES)])


def _drain(connection: socket.socket, size_bytes: int) -> None:
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    remaining = size_bytes
    while remaining:
        count = connection.recv_into(chunk, min(remaining, _CHUNK_BYTES))
        if not count:
            raise _describe_closed()
        remaining -= count


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        data = connection.recv(size_bytes - len(received))
        if not data:
            raise _describe_closed()
        received += data
    return received


def _describe_closed() -> ConnectionError:
    return ConnectionError("the other process closed the connection")


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_EXIT_SECONDS)  # it exits by itself when the connection is closed
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_EXIT_SECONDS)


def _serve(port: int, budget_seconds: float) -> None:
    secret = os.read(0, _SECRET_BYTES)
    with socket.create_connection((_HOST, port), timeout=budget_seconds) as connection:
        _configure(connection, budget_seconds)
        connection.sendall(secret)
        with contextlib.suppress(ConnectionError):
            while True:
                both_ways, size_bytes = _REQUEST.unpack(_receive(connection, _REQUEST.size))
                _exchange(connection, size_bytes, sends=both_ways, receives=True)
                connection.sendall(_DONE)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), float(sys.argv[2]))
