"""A server on loopback that asks for no secret answers its own user alone: the kernel says who connects."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuyard.run.horovod_rendezvous import OwnUserOnly

ASK = b"PUT /global/rank_0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.server.kept.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(OwnUserOnly, ThreadingHTTPServer):  # type: ignore[misc] # as Horovod's is made
    kept: list[str]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.kept = []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def answered(server: Server, source: str = "127.0.0.1", uid: int | None = None) -> bool:
    """Whether a process of this user gets an answer."""
    child = os.fork()
    if child == 0:
        said = b""
        with contextlib.suppress(OSError):
            if uid is not None:
                os.setuid(uid)
            place = ("127.0.0.1", server.server_port)
            with socket.create_connection(place, 20, source_address=(source, 0)) as connection:
                connection.sendall(ASK)
                said = connection.recv(100)
        os._exit(0 if b" 200 " in said else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 3)
    return status == 0


def test_ones_own_processes_are_answered(server: Server) -> None:
    assert answered(server)
    assert (server.kept, server.strangers) == (["/global/rank_0"], 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.9"])
def test_another_user_is_turned_away(server: Server, source: str) -> None:
    assert not answered(server, source, uid=65534)
    assert (server.kept, server.strangers) == ([], 1)
