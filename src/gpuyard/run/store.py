"""Where the ranks of several nodes find each other: a few keys and values, kept by one process of the run.

torch's own store listens on every interface and obeys whoever connects. This one listens on the address of the
first node alone and answers only those that know the run's secret. It is used while ranks find each other; what
they exchange afterwards goes straight from rank to rank.
"""

import base64
import contextlib
import ipaddress
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gpuyard.errors import GpuyardError
from gpuyard.run.channel import HANDSHAKE_SECONDS, Channel, NotOfThisRun, admit, join
from gpuyard.run.protocol import STRANGER, Rendezvous

_MOST_KNOCKING = 64
_MOST_TOLD = 20  # strangers, by their address
_LOOK_SECONDS = (0.002, 0.05)


class StoreKeeper(socketserver.ThreadingTCPServer):
    """Keeps the store from a thread of this process, as long as this process lives."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._secret = rendezvous.secret
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._doorway = threading.BoundedSemaphore(_MOST_KNOCKING)
        self._strangers: set[str] = set()
        self._listen(rendezvous)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def _listen(self, rendezvous: Rendezvous) -> None:
        fault: OSError | None = None
        for family, address in addresses(rendezvous):
            self.address_family = family
            try:
                super().__init__(address, socketserver.BaseRequestHandler)
            except OSError as error:
                fault = error
            else:
                return
        why = fault.strerror if fault else "it has no address"
        raise GpuyardError(
            f"the ranks can't meet at port {rendezvous.port} of {rendezvous.address}: {why}; is that "
            "an address of the first host itself?"
        )

    def close(self) -> None:
        """For a process that goes on without it; it is done with when its process ends."""
        self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Only so many may stand in the doorway at once: strangers that wait there can't take all threads."""
        return self._doorway.acquire(blocking=False)

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            channel = admit(request, self._secret)
        except NotOfThisRun:
            self._tell_of(client_address[0])
            return
        finally:
            self._doorway.release()
        with contextlib.suppress(OSError):  # its process has ended
            while True:
                channel.send(self._answer(channel.receive()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing that comes over a connection ends up as a traceback."""

    def _tell_of(self, address: str) -> None:
        with self._lock:
            if address in self._strangers or len(self._strangers) == _MOST_TOLD:
                return
            self._strangers.add(address)
        sys.stderr.write(f"{STRANGER}{address}\n")
        sys.stderr.flush()

    def _answer(self, question: bytes) -> bytes:
        do, keys, value, expected = json.loads(question)
        with self._lock:
            answer: Callable[..., Any] = getattr(self, f"_do_{do}")
            return json.dumps(answer(keys, value, expected)).encode()

    def _do_set(self, keys: list[str], value: str, _expected: None) -> None:
        self._values[keys[0]] = base64.b64decode(value)

    def _do_get(self, keys: list[str], *_: None) -> str:
        return base64.b64encode(self._values[keys[0]]).decode()

    def _do_add(self, keys: list[str], amount: int, _expected: None) -> int:
        total = int(self._values.get(keys[0], b"0")) + amount
        self._values[keys[0]] = str(total).encode()
        return total

    def _do_swap(self, keys: list[str], value: str, expected: str) -> str:
        now = self._values.get(keys[0])
        if (now is None and not expected) or now == base64.b64decode(expected):
            self._values[keys[0]] = now = base64.b64decode(value)
        return expected if now is None else base64.b64encode(now).decode()

    def _do_check(self, keys: list[str], *_: None) -> bool:
        return all(key in self._values for key in keys)

    def _do_delete(self, keys: list[str], *_: None) -> bool:
        return self._values.pop(keys[0], None) is not None

    def _do_count(self, *_: Any) -> int:
        return len(self._values)


class RunStore(dist.Store):  # type: ignore[name-defined, misc]
    """The store as torch sees it, from any process of the run."""

    def __init__(self, rendezvous: Rendezvous, seconds: float) -> None:
        super().__init__()
        self.set_timeout(timedelta(seconds=seconds))
        self._channel = _reach(rendezvous, seconds)
        self._lock = threading.Lock()

    def set(self, key: str, value: str | bytes) -> None:
        self._ask("set", [key], _text(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return base64.b64decode(self._ask("get", [key]))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", [key], amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return base64.b64decode(self._ask("swap", [key], _text(desired), _text(expected)))

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", list(keys)))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = (timeout or self.timeout).total_seconds()
        deadline = time.monotonic() + seconds
        pause, longest = _LOOK_SECONDS
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise dist.DistStoreError(f"timed out after {seconds:g} s waiting for {keys[0]}")
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete", [key]))

    def num_keys(self) -> int:
        return int(self._ask("count", []))

    def close(self) -> None:
        """For a process that goes on without it."""
        self._channel.close()

    def clone(self) -> "RunStore":
        return self

    def _ask(self, do: str, keys: list[str], value: Any = None, expected: Any = None) -> Any:
        with self._lock:
            try:
                self._channel.send(json.dumps([do, keys, value, expected]).encode())
                return json.loads(self._channel.receive())
            except OSError as error:
                raise dist.DistStoreError(f"the run's store has gone: {error}") from error


def _text(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _reach(rendezvous: Rendezvous, seconds: float) -> Channel:
    """Its keeper may start later than this process."""
    deadline = time.monotonic() + seconds
    pause, longest = _LOOK_SECONDS
    while True:
        why = "it has no address"
        for _, address in addresses(rendezvous):
            try:
                connection = socket.create_connection(address[:2], timeout=HANDSHAKE_SECONDS)
            except OSError as error:
                why = str(error)
                continue
            try:
                return join(connection, rendezvous.secret)
            except OSError as error:
                connection.close()
                why = str(error)
        if time.monotonic() > deadline:
            raise GpuyardError(
                f"{rendezvous.address} can't be reached at port {rendezvous.port}, where the ranks meet, "
                f"from {socket.gethostname()}: {why}; is that its name there too, and is the port open "
                "between the hosts?"
            )
        time.sleep(pause)
        pause = min(2 * pause, 10 * longest)


def addresses(rendezvous: Rendezvous) -> Iterator[tuple[socket.AddressFamily, Any]]:
    """Where the store is, the likeliest first, as seen from any of the nodes.

    The first node often has its own name for its loopback, and behind a network translation its public address
    is none of its own. Then it listens where it reaches the others from, and its own ranks look there, too.
    """
    named = _resolved(rendezvous.address, rendezvous.port)
    reachable = [one for one in named if not _is_loopback(one[1][0])]
    yield from reachable
    for other in rendezvous.others:
        for family, address in _resolved(other, rendezvous.port):
            source = _source_towards(family, address)
            if source is not None and not _is_loopback(source):
                yield family, (source, rendezvous.port)
    yield from (one for one in named if one not in reachable)


def _resolved(name: str, port: int) -> Sequence[tuple[socket.AddressFamily, Any]]:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return [(family, address) for family, _, _, _, address in found]


def _source_towards(family: socket.AddressFamily, address: Any) -> str | None:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # of a datagram socket: nothing is sent
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
