"""A service of another version than the client: an error message, never a traceback."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.share import wire
from gpuyard.share.client import ServiceClient
from gpuyard.share.models import LeaseRequest, ReservationRequest
from gpuyard.share.wire import SOCKET

ANSWERS = (
    b'{"answer": {"held": [{}], "waiting": [], "reservations": []}}\n',
    b'{"answer": {"held": [{"new": 1, "wanted": [], "gpus": []}], "waiting": [], "reservations": []}}\n',
    b'{"answer": {"lease": {}, "position": 1}}\n',
    b'{"answer": 5}\n',
    b'{"answer": ["x"]}\n',
    b'{"error": "no", "status": "y"}\n',
    b"[1]\n",
    b"5\n",
    b"nonsense\n",
    b"[" * 5000 + b"\n",
)
ASKED: tuple[Callable[[ServiceClient], object], ...] = (
    lambda client: client.state(),
    lambda client: client.history(),
    lambda client: client.resume(),
    lambda client: client.ask(LeaseRequest()),
    lambda client: client.claim("0000abcd"),
    lambda client: client.release("0000abcd"),
    lambda client: client.cancel("0000abcd"),
    lambda client: client.reserve(ReservationRequest(1, 1.0, 2.0)),
    lambda client: client.drain((), None),
)


@pytest.fixture(params=ANSWERS)
def client(share: Path, request: pytest.FixtureRequest) -> Iterator[ServiceClient]:
    """A client of a service that always sends the same answer."""
    with socket.socket(socket.AF_UNIX) as listening:
        with wire.socket_path(share) as path:
            listening.bind(path)
        listening.listen()

        def answer() -> None:
            for _ in ASKED:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(wire.MAX_REQUEST_BYTES)
                    connection.sendall(request.param)

        threading.Thread(target=answer, daemon=True).start()
        yield ServiceClient(share)
        (share / SOCKET).unlink()


def test_an_answer_of_another_version_is_reported(client: ServiceClient) -> None:
    for ask in ASKED:
        with pytest.raises(GpuyardError, match="another version of gpuyard"):
            ask(client)
