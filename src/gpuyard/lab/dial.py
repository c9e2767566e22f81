"""`python -P -m gpuyard.lab.dial NAMESPACE ADDRESS PORT`: joins its standard streams to a port of a lab's machine.

What ssh calls a ProxyCommand: no address of a lab can be reached from the host's own network, and none has to be.
"""

import os
import selectors
import socket
import sys

from gpuyard.lab.enter import enter
from gpuyard.printable import printable

_CHUNK_BYTES = 1 << 16
_CONNECT_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    namespace, address, port = arguments
    try:
        enter(namespace, address, sorted(os.sched_getaffinity(0)))
        connection = socket.create_connection((address, int(port)), _CONNECT_SECONDS)
    except OSError as error:
        sys.stderr.write(printable(f"gpuyard: {address} can't be reached: {error.strerror}\n"))
        return 1
    connection.settimeout(None)
    _join(connection)
    return 0


def _join(connection: socket.socket) -> None:
    """Until the machine has said all; that nothing more is typed is told to it."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is connection:
                    data = connection.recv(_CHUNK_BYTES)
                    if not data:
                        return
                    _write_all(data)
                elif typed := os.read(0, _CHUNK_BYTES):
                    connection.sendall(typed)
                else:
                    waiting.unregister(0)
                    connection.shutdown(socket.SHUT_WR)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
