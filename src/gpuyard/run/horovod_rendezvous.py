"""Horovod's rendezvous: its own small HTTP server, and the variables that point the ranks to it.

Horovod itself would listen on every interface without a secret. Here it listens on loopback, where the kernel tells which
user connects, or on the first node of a lab, which only the lab can reach.
"""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.loopback_port import find_client_uid
from gpuyard.run.places.place import Place

_START_SECONDS = 30.0


@dataclass(frozen=True)
class RankLayout:
    """The host of each rank, and the address of the server."""

    hosts: tuple[str, ...]
    address: str
    interface: str
    enter: Callable[[], None]

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables that `horovodrun --gloo` sets; the ranks of one host are consecutive."""
        host = self.hosts[rank]
        unique_hosts = list(dict.fromkeys(self.hosts))
        return {
            "HOROVOD_HOSTNAME": host,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(len(self.hosts)),
            "HOROVOD_LOCAL_RANK": str(rank - self.hosts.index(host)),
            "HOROVOD_LOCAL_SIZE": str(self.hosts.count(host)),
            "HOROVOD_CROSS_RANK": str(unique_hosts.index(host)),
            "HOROVOD_CROSS_SIZE": str(len(unique_hosts)),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.address,
            "HOROVOD_GLOO_IFACE": self.interface,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }


@contextlib.contextmanager
def horovod_rendezvous(
    place: Place, processes: int, fusion_buffer_bytes: int | None = None
) -> Iterator[Callable[[int], Mapping[str, str]]]:
    """Serve the rendezvous, and yield a function that returns the additional variables of each rank."""
    layout = create_layout(place, processes)
    with _server(layout) as port:
        common = {"HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        if fusion_buffer_bytes is not None:
            common["HOROVOD_FUSION_THRESHOLD"] = str(fusion_buffer_bytes)
        yield lambda rank: {**layout.variables(rank), **common}


def create_layout(place: Place, processes: int) -> RankLayout:
    listen_address = place.listen_address()
    if listen_address is None:
        raise UserMistake(place.why_no_horovod or "horovod's ranks cannot connect to this process")
    hosts = tuple(
        listen_address.node_addresses[position.node] for position in place.rank_positions(processes)
    )
    return RankLayout(hosts, listen_address.address, listen_address.interface, listen_address.enter)


@contextlib.contextmanager
def _server(layout: RankLayout) -> Iterator[int]:
    """Serve in a separate thread, which enters the network of the node where it listens."""
    from horovod.runner.http.http_server import (
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    class SameUserServer(SameUserOnly, RendezvousHTTPServer):  # type: ignore[misc]
        """Horovod's server, restricted to this user."""

    results: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        try:
            layout.enter()
            server = SameUserServer((layout.address, 0), RendezvousHandler, 0)
        except OSError as error:
            results.put(error)
            return
        server.init(_assign_hosts(layout.hosts))
        results.put(server)
        server.serve_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    server = results.get(timeout=_START_SECONDS)
    if isinstance(server, OSError):
        raise GpuyardError(
            f"horovod's rendezvous cannot listen on {layout.address}: {server.strerror}"
        )
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        if server.rejected:
            sys.stderr.write("gpuyard: rejected a connection from another user to this run\n")


def _assign_hosts(hosts: Sequence[str]) -> Any:
    from horovod.runner.common.util.hosts import (
        get_host_assignments,
        parse_hosts,
    )

    slots = ",".join(f"{host}:{hosts.count(host)}" for host in dict.fromkeys(hosts))
    return get_host_assignments(parse_hosts(slots), len(hosts))


class SameUserOnly:
    """A `socketserver` mixin that rejects other users on loopback before it reads from them.

    Other addresses accept everybody: they are inside a lab, which only the lab can reach.
    """

    rejected = 0
    server_address: tuple[str, int]

    def verify_request(self, request: object, client_address: tuple[str, int]) -> bool:
        del request
        if not self.server_address[0].startswith("127."):
            return True
        is_own = find_client_uid(client_address, self.server_address) == os.geteuid()
        self.rejected += not is_own
        return is_own
