"""The loopback port that connects one user's processes to a Unix socket."""

import gc
import socket
import threading
from pathlib import Path

from gpuyard.loopback_port import PortRelay


def test_a_client_that_has_sent_everything_still_gets_its_answer(tmp_path: Path) -> None:
    target = tmp_path / "target.sock"
    relay = PortRelay(target)
    request_read = threading.Event()
    collected = threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello ")
            while connection.recv(1024):
                pass
            request_read.set()
            collected.wait(60)
            connection.sendall(b"answer")

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(target))
        server.listen()
        threading.Thread(target=answer, daemon=True).start()
        relay.start()
        with socket.create_connection(("127.0.0.1", relay.port), timeout=60) as client:
            assert client.recv(1024) == b"hello "
            client.sendall(b"request")
            client.shutdown(socket.SHUT_WR)
            assert request_read.wait(60)
            gc.collect()
            collected.set()
            assert client.recv(1024) == b"answer"
