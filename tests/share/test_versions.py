"""A service of another version than whoever asks it: a sentence, never a traceback."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.share.service import wire
from gpuyard.share.service.desk import ServiceDesk
from gpuyard.share.service.wire import SOCKET
from gpuyard.share.store.lease import LeaseRequest
from gpuyard.share.turns.reservations import Wish

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
ASKED: tuple[Callable[[ServiceDesk], object], ...] = (
    ServiceDesk.state,
    ServiceDesk.history,
    ServiceDesk.resume,
    lambda desk: desk.ask(LeaseRequest()),
    lambda desk: desk.claim("0000abcd"),
    lambda desk: desk.release("0000abcd"),
    lambda desk: desk.cancel("0000abcd"),
    lambda desk: desk.reserve(Wish(1, 1.0, 2.0)),
    lambda desk: desk.drain((), None),
)


@pytest.fixture(params=ANSWERS)
def desk(share: Path, request: pytest.FixtureRequest) -> Iterator[ServiceDesk]:
    """At a service that always says the same."""
    with socket.socket(socket.AF_UNIX) as listening:
        with wire.socket_path(share) as path:
            listening.bind(path)
        listening.listen()

        def answer() -> None:
            for _ in ASKED:
                connection, _ = listening.accept()
                with connection:
                    wire.receive(connection, wire.MOST_REQUEST_BYTES)
                    connection.sendall(request.param)

        threading.Thread(target=answer, daemon=True).start()
        yield ServiceDesk(share)
        (share / SOCKET).unlink()


def test_what_is_not_understood_is_a_sentence(desk: ServiceDesk) -> None:
    for ask in ASKED:
        with pytest.raises(GpuyardError, match=r"of another version|as another version of gpuyard"):
            ask(desk)
