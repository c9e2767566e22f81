"""ssh's ProxyCommand for lab machines: `python -P -m gpuyard.lab.ssh_proxy NAMESPACE ADDRESS PORT`.

It connects its standard streams to a port of the machine, because lab addresses are unreachable from the
host's own network.
"""

import os
import selectors
import socket
import sys

from gpuyard.lab.enter import enter
from gpuyard.printable import make_printable

_CHUNK_BYTES = 1 << 16
_CONNECT_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    namespace, address, port = arguments
    try:
        enter(namespace, address, sorted(os.sched_getaffinity(0)))
        connection = socket.create_connection((address, int(port)), _CONNECT_SECONDS)
    except OSError as error:
        sys.stderr.write(make_printable(f"gpuyard: {address} is unreachable: {error.strerror}\n"))
        return 1
    connection.settimeout(None)
    _relay(connection)
    return 0


def _relay(connection: socket.socket) -> None:
    """Copy both ways until the machine closes; pass on the end of stdin."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is connection:
                    data = connection.recv(_CHUNK_BYTES)
                    if not data:
                        return
                    _write_all(data)
                elif data := os.read(0, _CHUNK_BYTES):
                    connection.sendall(data)
                else:
                    selector.unregister(0)
                    connection.shutdown(socket.SHUT_WR)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
