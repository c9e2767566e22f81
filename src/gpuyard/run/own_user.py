"""Who is at the other end of a connection over loopback, as the kernel says: for servers of others that ask nobody."""

import os
import socket
import sys
from pathlib import Path

_ESTABLISHED = "01"
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns of /proc/net/tcp, see proc(5)


class OwnUserOnly:
    """Mixed into a `socketserver`: on loopback, another user is let go before a byte of theirs is read.

    Elsewhere it lets everybody in: there it listens inside of a lab, where nobody else is.
    """

    strangers = 0
    server_address: tuple[str, int]

    def verify_request(self, request: object, client_address: tuple[str, int]) -> bool:
        """In place of the one that accepts everybody."""
        del request
        if not self.server_address[0].startswith("127."):
            return True
        own = uid_of(client_address, self.server_address) == os.geteuid()
        self.strangers += not own
        return own


def uid_of(end: tuple[str, int], other: tuple[str, int]) -> int | None:
    """Whose connection it is that has this end on this machine; None: it is closed by now."""
    wanted = (_written(end), _written(other), _ESTABLISHED)
    # of the thread, which may be in a network namespace of its own
    for line in Path("/proc/thread-self/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        columns = line.split()
        if (columns[_LOCAL], columns[_REMOTE], columns[_STATE]) == wanted:
            return int(columns[_UID])
    return None


def _written(address: tuple[str, int]) -> str:
    """127.0.0.1:80 → 0100007F:0050, where this machine has the lowest byte of a word first."""
    word = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{word:08X}:{address[1]:04X}"
