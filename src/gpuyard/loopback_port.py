"""Ports on the loopback address, which every user of the machine can reach: who uses them, and a port for one user only."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuyard.errors import GpuyardError

_ESTABLISHED, _LISTENING = "01", "0A"
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns of /proc/net/tcp, see proc(5)
_ADDRESS = "127.0.0.1"
_MAX_PATH_BYTES = 107  # of a Unix socket
_CHUNK_BYTES = 65536

Address = tuple[str, int]
"""An IPv4 address and a port."""


def find_client_uid(client: Address, server: Address) -> int | None:
    """Return the user of a connection's client; None if it is already closed."""
    connection = [_format_address(client), _format_address(server), _ESTABLISHED]
    for columns in _read_connections():
        if columns[_LOCAL : _STATE + 1] == connection:
            return int(columns[_UID])
    return None


def find_listener_uid(port: int) -> int | None:
    """Return the user who listens on this port of the loopback address; None if no one does."""
    listener = (_format_address((_ADDRESS, port)), _LISTENING)
    for columns in _read_connections():
        if (columns[_LOCAL], columns[_STATE]) == listener:
            return int(columns[_UID])
    return None


def _read_connections() -> Iterator[list[str]]:
    # Read the thread's own table: the thread may be in another network namespace.
    for line in Path("/proc/thread-self/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        yield line.split()


def _format_address(address: Address) -> str:
    """Format 127.0.0.1:80 as the kernel does: 0100007F:0050 on a little-endian machine."""
    word = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{word:08X}:{address[1]:04X}"


class PortRelay:
    """A loopback port that connects processes of this user to a Unix socket, which a server creates later.

    The port is bound at once and until the end, so that no other user can listen there in place of the server.
    """

    def __init__(self, target: Path, port: int = 0) -> None:
        if len(os.fsencode(target)) > _MAX_PATH_BYTES:
            raise GpuyardError(
                f"{target} is too long for a socket; set TMPDIR to a directory with a shorter path"
            )
        self._target = target
        self._listener = socket.create_server((_ADDRESS, port))
        self.port = int(self._listener.getsockname()[1])
        self._relays: set[object] = set()

    def start(self) -> None:
        """Relay connections in a thread until this process ends."""
        start_thread(lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, sock=self._listener)
        await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The event loop forgets a connection whose client has sent everything; hold the task, which still copies the answer.
        task = asyncio.current_task()
        self._relays.add(task)
        try:
            await self._copy_both_ways(reader, writer)
        finally:
            self._relays.discard(task)

    async def _copy_both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            if not _is_own_client(writer.get_extra_info("socket")):
                return
            target_reader, target_writer = await asyncio.open_unix_connection(self._target)
            with contextlib.closing(target_writer):
                await asyncio.gather(_copy(reader, target_writer), _copy(target_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


def _is_own_client(connection: socket.socket) -> bool:
    if sys.platform != "linux":
        return True  # no table to look into; the server behind the port asks for its token
    client = find_client_uid(connection.getpeername(), connection.getsockname())
    return client in (0, os.getuid())


def start_thread(run: Callable[[], None]) -> None:
    """Start a thread with all signals blocked, so that the main thread gets them."""
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=run, daemon=True).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
