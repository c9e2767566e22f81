"""Where horovod's ranks meet: its own small HTTP server, and the variables that name it."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def horovod_rendezvous(processes: int) -> Iterator[Callable[[int], Mapping[str, str]]]:
    """Yields the environment of each rank, as `horovodrun --gloo` would set it on one host."""
    from horovod.runner.common.util.hosts import (  # type: ignore[import-not-found]
        get_host_assignments,
        parse_hosts,
    )
    from horovod.runner.http.http_server import (  # type: ignore[import-not-found]
        RendezvousServer,
    )

    host = socket.gethostname()
    server = RendezvousServer(0)
    port = server.start()
    server.init(get_host_assignments(parse_hosts(f"{host}:{processes}"), processes))
    common = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_SIZE": str(processes),
        "HOROVOD_LOCAL_SIZE": str(processes),
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
    }
    try:
        yield lambda rank: {
            **common,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_LOCAL_RANK": str(rank),
        }
    finally:
        server.stop()
