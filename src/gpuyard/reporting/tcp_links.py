"""Reads how fast this process sends to each other machine, from the counters that Linux keeps for its TCP connections.

A collective sends over a connection whenever it has data, so the bytes per time in which data was on its way are the
rate of the link to that peer. In a ring, all ranks take as long as the slowest link; these rates tell which link it is.
"""

import os
import socket
import struct
import sys
from dataclasses import dataclass

_MAX_DESCRIPTORS = 1024
_MAX_PEERS = 32
_MIN_BYTES = 1_000_000  # fewer say nothing about the rate of a link
# struct tcp_info of linux/tcp.h: retransmitted segments, acknowledged bytes, and microseconds with data on its way, of
# which the receiver took no data in rwnd_limited
_TCP_INFO = struct.Struct("=100xI16xQ40xQQ")
_LOOPBACK = ("127.", "::1")

Connection = tuple[str, int, str, int]
"""The own address and port, and those of the peer."""


@dataclass(frozen=True)
class Counters:
    """The counters of one connection since it was opened."""

    sent_bytes: int
    busy_microseconds: int
    retransmits: int


class LinkMeter:
    """Measures the rates to all peers between two reads."""

    def __init__(self) -> None:
        self._last = read_connections()

    def read(self) -> list[dict[str, object]]:
        """Return the bytes, seconds, and retransmits for each pair of addresses since the last read, most bytes first."""
        connections = read_connections()
        sums: dict[tuple[str, str], list[int]] = {}
        for connection, now in connections.items():
            before = self._last.get(connection, Counters(0, 0, 0))
            own, _, peer, _ = connection
            changes = (
                now.sent_bytes - before.sent_bytes,
                now.busy_microseconds - before.busy_microseconds,
                now.retransmits - before.retransmits,
            )
            if min(changes) >= 0:  # another connection may have got the same ports
                total = sums.setdefault((own, peer), [0, 0, 0])
                total[:] = [a + b for a, b in zip(total, changes, strict=True)]
        self._last = connections
        busiest = sorted(sums.items(), key=lambda item: -item[1][0])[:_MAX_PEERS]
        return [
            {
                "from": own,
                "to": peer,
                "bytes": sent,
                "seconds": round(busy / 1e6, 6),
                "retransmits": retransmits,
            }
            for (own, peer), (sent, busy, retransmits) in busiest
            if sent >= _MIN_BYTES and busy > 0
        ]


def read_connections() -> dict[Connection, Counters]:
    """Return this process's TCP connections to other machines; none if the system does not tell."""
    if sys.platform != "linux":
        return {}
    connections: dict[Connection, Counters] = {}
    try:
        descriptors = os.listdir("/proc/self/fd")[:_MAX_DESCRIPTORS]  # noqa: PTH208
    except OSError:
        return {}
    for descriptor in descriptors:
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):  # noqa: PTH115
                read = _read_connection(int(descriptor))
                if read is not None:
                    connections[read[0]] = read[1]
        except (OSError, ValueError, struct.error):  # the training closed it meanwhile
            continue
    return connections


def _read_connection(descriptor: int) -> tuple[Connection, Counters] | None:
    """Read one socket through a copy of its descriptor, whose closing leaves the training's own open."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if connection.type != socket.SOCK_STREAM:
            return None
        own, peer = connection.getsockname(), connection.getpeername()
        if own[0] == peer[0] or str(peer[0]).startswith(_LOOPBACK):
            return None
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    retransmits, sent, busy, limited = _TCP_INFO.unpack_from(info)
    counters = Counters(sent, max(0, busy - limited), retransmits)
    return (_plain(own[0]), own[1], _plain(peer[0]), peer[1]), counters


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:").partition("%")[0]
