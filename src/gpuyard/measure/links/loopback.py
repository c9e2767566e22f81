"""TCP between two processes of this host over 127.0.0.1: what gradients cross where there is no GPU.

The other process is this module, run by `python -m`. It connects back, shows a secret that only its
parent knows, takes or sends what the parent asks for, and leaves when the connection ends.
"""

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic, perf_counter

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv

MOST_BYTES = 4 * 10**9
_HOST = "127.0.0.1"
_SECRET_BYTES = 16
_ORDER = struct.Struct("!?Q")  # both ways?, bytes in each direction
_DONE = b"."
_CHUNK_BYTES = 2**20
_LEAVE_SECONDS = 5.0


class Loopback:
    """A connection to the other process, and the time that bytes take over it."""

    def __init__(self, connection: socket.socket, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    def seconds(self, size_bytes: int, *, both_ways: bool) -> float:
        """Send so many bytes (and take as many at once) until the other side has said that it has all."""
        start = self._clock()
        self._connection.sendall(_ORDER.pack(both_ways, size_bytes))
        _exchange(self._connection, size_bytes, sends=True, takes=both_ways)
        if self._connection.recv(len(_DONE)) != _DONE:
            raise ConnectionError("the other side left")
        return self._clock() - start


@contextlib.contextmanager
def open_loopback(
    *, budget_seconds: float = 120.0, clock: Callable[[], float] = perf_counter
) -> Iterator[Loopback]:
    """Start the other process; when this ends, so has it. No single wait is longer than the budget."""
    secret = secrets.token_bytes(_SECRET_BYTES)
    with socket.create_server((_HOST, 0), backlog=1) as listener:
        process = _start(listener.getsockname()[1], secret, budget_seconds)
        try:
            with _accept(listener, secret, process, budget_seconds) as connection:
                _tune(connection, budget_seconds)
                yield Loopback(connection, clock)
        except OSError as error:
            raise GpuyardError(
                f"the loopback bench stopped: {error}; is 127.0.0.1 open to this user's processes?"
            ) from error
        finally:
            _stop(process)


def loopback_seconds(
    size_bytes: int, repeats: int, *, both_ways: bool, budget_seconds: float = 120.0
) -> list[float]:
    """One uncounted exchange, which opens the window of TCP, then the repeats."""
    if not 0 < size_bytes <= MOST_BYTES:
        raise ValueError(f"{size_bytes} bytes are not between 1 and {MOST_BYTES}")
    deadline = monotonic() + budget_seconds
    with open_loopback(budget_seconds=budget_seconds) as loopback:
        loopback.seconds(size_bytes, both_ways=both_ways)
        took: list[float] = []
        for _ in range(repeats):
            if took and monotonic() > deadline:
                break
            took.append(loopback.seconds(size_bytes, both_ways=both_ways))
    return took


def _start(port: int, secret: bytes, budget_seconds: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*module_argv("gpuyard.measure.links.loopback"), str(port), str(budget_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the bench, which then stops this
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
    """The first that knows the secret; others of this host may knock too."""
    listener.settimeout(0.2)
    deadline = monotonic() + min(budget_seconds, 60.0)
    while monotonic() < deadline:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if process.poll() is not None:
                raise ConnectionError(
                    f"the other process ended with status {process.returncode}"
                ) from None
            continue
        connection.settimeout(_LEAVE_SECONDS)
        with contextlib.suppress(OSError):
            if secrets.compare_digest(_take(connection, _SECRET_BYTES), secret):
                return connection
        connection.close()
    raise TimeoutError("the other process did not connect")


def _tune(connection: socket.socket, budget_seconds: float) -> None:
    connection.settimeout(budget_seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _exchange(connection: socket.socket, size_bytes: int, *, sends: bool, takes: bool) -> None:
    if not (sends and takes):
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
    left = size_bytes
    while left:
        left -= connection.send(chunk[: min(left, _CHUNK_BYTES)])


def _drain(connection: socket.socket, size_bytes: int) -> None:
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    left = size_bytes
    while left:
        came = connection.recv_into(chunk, min(left, _CHUNK_BYTES))
        if not came:
            raise ConnectionError("the other side left")
        left -= came


def _take(connection: socket.socket, size_bytes: int) -> bytes:
    taken = b""
    while len(taken) < size_bytes:
        came = connection.recv(size_bytes - len(taken))
        if not came:
            raise ConnectionError("the other side left")
        taken += came
    return taken


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LEAVE_SECONDS)  # it leaves by itself when the connection is closed
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_LEAVE_SECONDS)


def _other_side(port: int, budget_seconds: float) -> None:
    secret = os.read(0, _SECRET_BYTES)
    with socket.create_connection((_HOST, port), timeout=budget_seconds) as connection:
        _tune(connection, budget_seconds)
        connection.sendall(secret)
        with contextlib.suppress(ConnectionError):
            while True:
                both_ways, size_bytes = _ORDER.unpack(_take(connection, _ORDER.size))
                _exchange(connection, size_bytes, sends=both_ways, takes=True)
                connection.sendall(_DONE)


if __name__ == "__main__":
    _other_side(int(sys.argv[1]), float(sys.argv[2]))
