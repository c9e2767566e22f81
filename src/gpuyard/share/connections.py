"""The connections of the service. One loop reads all requests and sends all answers, so that a slow client occupies no
thread; a fixed number of threads perform requests in fair turns.

Every resource has a limit per user: connections, the time to send a request and to read its answer, and requests that run
at once. The service keeps answering if it cannot start threads or open files.
"""

import contextlib
import os
import queue
import select
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.share import wire
from gpuyard.share.caller import Caller, read_peer
from gpuyard.share.turns import FairQueue

MAX_CONNECTIONS_PER_USER = 64
MAX_CONNECTIONS = 600
"""Connections of all users: with the files that requests open, they fit into the usual limit of 1024 open files."""
_MAX_THREADS, _MAX_RUNNING_PER_USER = 16, 2
_TRANSFER_SECONDS = 10.0  # for a whole request, and again for its answer
_SWEEP_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_CHUNK_BYTES = 65_536

Respond = Callable[[Caller, bytes], tuple[object, int | None]]
"""Performs a request of a caller; returns the answer and the lock to send with it."""


@dataclass(eq=False)
class Connection:
    """A client's connection and the progress of its one request."""

    socket: socket.socket
    caller: Caller
    deadline: float
    request: bytes = b""
    answer: bytes = b""
    lock: int | None = None
    is_served: bool = False

    def close(self) -> None:
        self.socket.close()
        self.close_lock()

    def close_lock(self) -> None:
        """Leave the lock of a new lease to the client alone."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def is_hung_up(self) -> bool:
        """Return whether the client has gone; one that only finished writing still waits for its answer."""
        poll = select.poll()
        poll.register(self.socket, 0)  # POLLHUP is always reported
        return bool(poll.poll(0))


class ConnectionServer:
    """Answers the connections to a listening socket; call `poll` in a loop."""

    def __init__(self, listening: socket.socket, respond: Respond) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._respond = respond
        self._turns: FairQueue[Connection] = FairQueue(_MAX_RUNNING_PER_USER)
        self._connections: dict[Connection, None] = {}
        self._count: Counter[int] = Counter()
        self._answered: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._accepts_from = 0.0
        self._threads = 0
        self._last_sweep = 0.0

    def poll(self, seconds: float) -> None:
        """Accept, read, and send for at most this long."""
        self._sweep()
        self._listen()
        listens = self._listening in self._selector.get_map()
        for key, _ in self._selector.select(
            min(seconds, _SWEEP_SECONDS if listens else _PAUSE_SECONDS)
        ):
            if key.fileobj is self._listening:
                self._accept()
            elif key.fileobj is self._wake_reader:
                with contextlib.suppress(BlockingIOError):
                    self._wake_reader.recv(_CHUNK_BYTES)
            elif key.data.answer:
                self._send(key.data)
            else:
                self._receive(key.data)
        while not self._answered.empty():
            connection = self._answered.get()
            connection.deadline = time.monotonic() + _TRANSFER_SECONDS
            self._send(connection)

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        self._selector.close()
        self._wake_reader.close()  # a thread that still performs a request finds it closed
        self._wake_writer.close()

    def _listen(self) -> None:
        """Accept connections again after a pause."""
        if (
            self._listening not in self._selector.get_map()
            and time.monotonic() >= self._accepts_from
        ):
            self._selector.register(self._listening, selectors.EVENT_READ)

    def _sweep(self) -> None:
        """Drop clients that take too long, and start threads that could not be started before."""
        now = time.monotonic()
        if now < self._last_sweep + _SWEEP_SECONDS:
            return
        self._last_sweep = now
        registered = self._selector.get_map()
        for connection in list(self._connections):
            if connection.deadline < now and connection.socket in registered:
                self._drop(connection)
        while self._threads < _MAX_THREADS:
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError:  # too many processes; those that run are enough
                break
            self._threads += 1

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError):  # the client has disconnected
            return
        except OSError:  # too many open files
            self._drop_one_of_the_most()
            self._accepts_from = time.monotonic() + _PAUSE_SECONDS
            self._selector.unregister(self._listening)
            return
        accepted.setblocking(False)
        try:
            caller = read_peer(accepted)
        except OSError:
            accepted.close()
            return
        if self._count[caller.uid] >= MAX_CONNECTIONS_PER_USER:
            _refuse(accepted, caller)
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            self._drop_one_of_the_most()
        connection = Connection(accepted, caller, time.monotonic() + _TRANSFER_SECONDS)
        self._connections[connection] = None
        self._count[caller.uid] += 1
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _drop_one_of_the_most(self) -> None:
        """Drop a connection of the user who has the most, if one is not being served."""
        registered = self._selector.get_map()
        idle = [c for c in self._connections if c.socket in registered]
        if idle:
            self._drop(max(idle, key=lambda connection: self._count[connection.caller.uid]))

    def _receive(self, connection: Connection) -> None:
        try:
            chunk = connection.socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
            connection.request = b""
        connection.request += chunk
        if not chunk and not connection.request:
            self._drop(connection)
            return
        too_long = len(connection.request) > wire.MAX_REQUEST_BYTES
        if connection.request.endswith(b"\n") or too_long or not chunk:
            if too_long:
                connection.request = b""
            self._selector.unregister(connection.socket)
            self._turns.put(connection.caller.uid, connection)
            if not self._threads:
                self._work_once()

    def _work(self) -> None:
        while True:
            with contextlib.suppress(MemoryError):
                self._work_once()

    def _work_once(self) -> None:
        connection = self._turns.take()
        connection.is_served = True
        try:
            if not connection.is_hung_up():
                document, connection.lock = self._respond(connection.caller, connection.request)
                connection.answer = wire.encode_line(document)
        finally:
            self._answered.put(connection)
            with contextlib.suppress(OSError):  # the loop is awake, or the service ends
                self._wake_writer.send(b"x")

    def _send(self, connection: Connection) -> None:
        try:
            if not connection.answer:
                sent = 0
            elif connection.lock is None:
                sent = connection.socket.send(connection.answer)
            else:
                sent = socket.send_fds(
                    connection.socket, [connection.answer[:_CHUNK_BYTES]], [connection.lock]
                )
                connection.close_lock()
            connection.answer = connection.answer[sent:]
        except BlockingIOError:
            pass
        except OSError:  # the client has disconnected
            connection.answer = b""
        if not connection.answer:
            self._drop(connection)
        elif connection.socket not in self._selector.get_map():
            self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)

    def _drop(self, connection: Connection) -> None:
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.close()
        if connection.is_served:  # only now, so that a user who reads no answers fills no memory
            self._turns.finish(connection.caller.uid)
        del self._connections[connection]
        self._count[connection.caller.uid] -= 1
        if not self._count[connection.caller.uid]:
            del self._count[connection.caller.uid]


def _refuse(accepted: socket.socket, caller: Caller) -> None:
    """Explain the limit if the client can still read it."""
    message = (
        f"{caller.user} has {MAX_CONNECTIONS_PER_USER} open connections to the lease service, which is the "
        "limit per user; try again"
    )
    with contextlib.suppress(OSError):
        accepted.send(wire.encode_line({"error": message, "status": 1, "busy": True}))
    accepted.close()
