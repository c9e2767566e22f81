"""Listen and serve: a loopback port, another address, or a Unix socket, with users as the kernel reports them."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuyard.errors import GpuyardError
from gpuyard.loopback_port import find_client_uid
from gpuyard.share.caller import read_peer
from gpuyard.web.app import create_app
from gpuyard.web.auth import KERNEL
from gpuyard.web.settings import WebSettings

_MAX_CONNECTIONS = 1000
_BACKLOG = 512
_STOP_SECONDS = 2
_HEADER_SECONDS = 10.0


class IdentifyingProtocol(H11Protocol):
    """HTTP whose client is a user: the kernel tells whose process is at the other end of a local connection."""

    asks_kernel = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if self.asks_kernel and connection is not None:
            self.client = (KERNEL, _find_uid(connection))
        self.loop.call_later(_HEADER_SECONDS, self._close_if_silent, None)

    def _close_if_silent(self, request_before: object) -> None:
        """Close a connection that has not sent a whole request since the last look, so that nobody can occupy them all."""
        if self.transport.is_closing():
            return
        waits = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        if waits and request_before is self.cycle:
            self.transport.close()
            return
        self.loop.call_later(_HEADER_SECONDS, self._close_if_silent, self.cycle if waits else self)


class PlainProtocol(IdentifyingProtocol):
    """HTTP whose client is an address; a token or a proxy's header says who it is."""

    asks_kernel = False


def _find_uid(connection: Any) -> int:
    with contextlib.suppress(OSError):
        if connection.family == socket.AF_UNIX:
            # asyncio wraps the socket; its credentials are those of the process that connected
            with socket.socket(fileno=os.dup(connection.fileno())) as own:
                return read_peer(own).uid
        uid = find_client_uid(connection.getpeername(), connection.getsockname())
        return -1 if uid is None else uid
    return -1


def serve(settings: WebSettings, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `on_ready` gets the address once the server accepts connections."""
    listening = _open_unix_socket(settings.socket) if settings.socket else open_port(settings)
    if settings.socket is None and settings.port == 0:
        settings = replace(settings, port=listening.getsockname()[1])
    asks = settings.auth in ("own-user", "peer")
    config = uvicorn.Config(
        create_app(settings),
        http=IdentifyingProtocol if asks else PlainProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    server = _Server(config, lambda: on_ready(settings.address), settings.socket)
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


class _Server(uvicorn.Server):
    """A server that reports when it accepts connections, and removes its socket before a signal ends the process."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], socket_path: Path | None
    ) -> None:
        super().__init__(config)
        self._on_ready, self._socket_path = on_ready, socket_path

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
        await super().shutdown(sockets)


def open_port(settings: WebSettings) -> socket.socket:
    """Listen on the port; its connections send every part of an answer at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server(
            (settings.host, settings.port), family=family, backlog=_BACKLOG
        )
    except OSError as error:
        raise GpuyardError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another port with --port"
        ) from error
    # connections inherit it; without it, the body of an answer waits 40 ms for the client's delayed acknowledgment
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _open_unix_socket(path: Path) -> socket.socket:
    """Create a socket that every user may connect to: the kernel identifies them."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode) and not _is_answering(path):
                path.unlink()
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        advice = "name a path in your own directory"
        if error.errno == errno.EADDRINUSE:
            advice = "another server may be listening there; stop it or name another path"
        raise GpuyardError(f"cannot listen on {path}: {error.strerror}; {advice}") from error
    return listening


def _is_answering(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
