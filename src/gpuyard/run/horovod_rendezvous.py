"""Where horovod's ranks meet: its own small HTTP server, and the variables that name it.

Horovod itself would listen on every interface and ask nobody for a secret; here it listens on loopback, where the kernel
says whether it is this user who connects, or on the first node of a lab, where nobody else is.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.run.places.place import Place

_START_SECONDS = 30.0
_ESTABLISHED = "01"
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns of /proc/net/tcp, see proc(5)


@dataclass(frozen=True)
class Seating:
    """Who sits where: a host for each rank, and where the server is."""

    hosts: tuple[str, ...]
    address: str
    interface: str
    enter: Callable[[], None]

    def variables(self, rank: int) -> dict[str, str]:
        """As `horovodrun --gloo` sets them; ranks of one host follow each other."""
        host = self.hosts[rank]
        different = list(dict.fromkeys(self.hosts))
        return {
            "HOROVOD_HOSTNAME": host,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(len(self.hosts)),
            "HOROVOD_LOCAL_RANK": str(rank - self.hosts.index(host)),
            "HOROVOD_LOCAL_SIZE": str(self.hosts.count(host)),
            "HOROVOD_CROSS_RANK": str(different.index(host)),
            "HOROVOD_CROSS_SIZE": str(len(different)),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.address,
            "HOROVOD_GLOO_IFACE": self.interface,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }


@contextlib.contextmanager
def horovod_rendezvous(
    place: Place, processes: int, fusion_buffer_bytes: int | None = None
) -> Iterator[Callable[[int], Mapping[str, str]]]:
    """Yields what each rank's environment has beside the place's own."""
    seating = seating_of(place, processes)
    with _server(seating) as port:
        common = {"HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        if fusion_buffer_bytes is not None:
            common["HOROVOD_FUSION_THRESHOLD"] = str(fusion_buffer_bytes)
        yield lambda rank: {**seating.variables(rank), **common}


def seating_of(place: Place, processes: int) -> Seating:
    listening = place.listening()
    if listening is None:
        raise UserMistake(place.why_no_horovod or "horovod's ranks can't reach this process")
    hosts = tuple(listening.node_addresses[seat.node] for seat in place.seats(processes))
    return Seating(hosts, listening.address, listening.interface, listening.enter)


@contextlib.contextmanager
def _server(seating: Seating) -> Iterator[int]:
    """In a thread of its own, which is on the node where it listens."""
    from horovod.runner.http.http_server import (  # type: ignore[import-not-found]
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    class OwnUsersServer(OwnUserOnly, RendezvousHTTPServer):  # type: ignore[misc]
        """Horovod's, for this user alone."""

    started: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        try:
            seating.enter()
            server = OwnUsersServer((seating.address, 0), RendezvousHandler, 0)
        except OSError as error:
            started.put(error)
            return
        server.init(_assignments(seating.hosts))
        started.put(server)
        server.serve_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    server = started.get(timeout=_START_SECONDS)
    if isinstance(server, OSError):
        raise GpuyardError(f"horovod's ranks can't meet on {seating.address}: {server.strerror}")
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        if server.strangers:
            sys.stderr.write(
                "gpuyard: another user of this machine tried to join this run and was turned away\n"
            )


def _assignments(hosts: Sequence[str]) -> Any:
    from horovod.runner.common.util.hosts import (  # type: ignore[import-not-found]
        get_host_assignments,
        parse_hosts,
    )

    slots = ",".join(f"{host}:{hosts.count(host)}" for host in dict.fromkeys(hosts))
    return get_host_assignments(parse_hosts(slots), len(hosts))


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
        own = _uid_of(client_address, self.server_address) == os.geteuid()
        self.strangers += not own
        return own


def _uid_of(end: tuple[str, int], other: tuple[str, int]) -> int | None:
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
