"""A loopback server without a secret accepts only its own user, as reported by the kernel."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuyard.run.horovod_rendezvous import SameUserOnly

REQUEST = b"PUT /global/rank_0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(SameUserOnly, ThreadingHTTPServer):  # type: ignore[misc] # like Horovod's server
    paths: list[str]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.paths = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def gets_response(server: Server, source: str = "127.0.0.1", uid: int | None = None) -> bool:
    """Return whether a process of this user gets a response."""
    child = os.fork()
    if child == 0:
        response = b""
        with contextlib.suppress(OSError):
            if uid is not None:
                os.setuid(uid)
            address = ("127.0.0.1", server.server_port)
            with socket.create_connection(address, 20, source_address=(source, 0)) as connection:
                connection.sendall(REQUEST)
                response = connection.recv(100)
        os._exit(0 if b" 200 " in response else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 3)
    return status == 0


def test_processes_of_the_same_user_get_a_response(server: Server) -> None:
    assert gets_response(server)
    assert (server.paths, server.rejected) == (["/global/rank_0"], 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.9"])
def test_another_user_is_rejected(server: Server, source: str) -> None:
    assert not gets_response(server, source, uid=65534)
    assert (server.paths, server.rejected) == ([], 1)
