"""The key-value store through which ranks on several nodes find each other, served by one process of the run.

torch's own store listens on every interface and accepts everybody. This one listens only on the first node's address and
requires the run's secret. Ranks use it only to find each other; they then communicate directly.
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
from gpuyard.run.channel import HANDSHAKE_SECONDS, AuthError, Channel, accept_peer, join_peer
from gpuyard.run.protocol import REJECTED_PEER, Rendezvous

_MAX_HANDSHAKES = 64
_MAX_REPORTED = 20  # rejected addresses
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.002, 0.05


class StoreServer(socketserver.ThreadingTCPServer):
    """Serves the store from a thread of this process."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._secret = rendezvous.secret
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._handshakes = threading.BoundedSemaphore(_MAX_HANDSHAKES)
        self._rejected: set[str] = set()
        self._listen(rendezvous)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def _listen(self, rendezvous: Rendezvous) -> None:
        reason: str | None = "it has no address"
        for family, address in list_addresses(rendezvous):
            self.address_family = family
            try:
                super().__init__(address, socketserver.BaseRequestHandler)
            except OSError as error:
                reason = error.strerror
            else:
                return
        raise GpuyardError(
            f"the rendezvous cannot listen at port {rendezvous.port} of {rendezvous.address}: {reason}; "
            "check that this is an address of the first host"
        )

    def close(self) -> None:
        """Stop serving, in a process that continues without the store."""
        self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Limit the number of handshakes, so that unauthenticated peers cannot use up all threads."""
        return self._handshakes.acquire(blocking=False)

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            channel = accept_peer(request, self._secret)
        except AuthError:
            self._report_rejected(client_address[0])
            return
        finally:
            self._handshakes.release()
        with contextlib.suppress(OSError):  # The peer has exited.
            while True:
                channel.send(self._answer(channel.receive()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback for a failed connection."""

    def _report_rejected(self, address: str) -> None:
        with self._lock:
            if address in self._rejected or len(self._rejected) == _MAX_REPORTED:
                return
            self._rejected.add(address)
        sys.stderr.write(f"{REJECTED_PEER}{address}\n")
        sys.stderr.flush()

    def _answer(self, request: bytes) -> bytes:
        operation, keys, value, expected = json.loads(request)
        with self._lock:
            perform: Callable[..., Any] = getattr(self, f"_do_{operation}")
            return json.dumps(perform(keys, value, expected)).encode()

    def _do_set(self, keys: list[str], value: str, _expected: None) -> None:
        self._values[keys[0]] = base64.b64decode(value)

    def _do_get(self, keys: list[str], *_: None) -> str:
        return base64.b64encode(self._values[keys[0]]).decode()

    def _do_add(self, keys: list[str], amount: int, _expected: None) -> int:
        total = int(self._values.get(keys[0], b"0")) + amount
        self._values[keys[0]] = str(total).encode()
        return total

    def _do_swap(self, keys: list[str], value: str, expected: str) -> str:
        current = self._values.get(keys[0])
        if (current is None and not expected) or current == base64.b64decode(expected):
            self._values[keys[0]] = current = base64.b64decode(value)
        return expected if current is None else base64.b64encode(current).decode()

    def _do_check(self, keys: list[str], *_: None) -> bool:
        return all(key in self._values for key in keys)

    def _do_delete(self, keys: list[str], *_: None) -> bool:
        return self._values.pop(keys[0], None) is not None

    def _do_count(self, *_: Any) -> int:
        return len(self._values)


class RunStore(dist.Store):  # type: ignore[name-defined, misc]
    """The client of the store, with torch's interface."""

    def __init__(self, rendezvous: Rendezvous, seconds: float) -> None:
        super().__init__()
        self.set_timeout(timedelta(seconds=seconds))
        self._channel = _connect(rendezvous, seconds)
        self._lock = threading.Lock()

    def set(self, key: str, value: str | bytes) -> None:
        self._request("set", [key], _encode(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return base64.b64decode(self._request("get", [key]))

    def add(self, key: str, amount: int) -> int:
        return int(self._request("add", [key], amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return base64.b64decode(self._request("swap", [key], _encode(desired), _encode(expected)))

    def check(self, keys: list[str]) -> bool:
        return bool(self._request("check", list(keys)))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = (timeout or self.timeout).total_seconds()
        deadline = time.monotonic() + seconds
        pause = _MIN_POLL_SECONDS
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise dist.DistStoreError(f"timed out after {seconds:g} s waiting for {keys[0]}")
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)

    def delete_key(self, key: str) -> bool:
        return bool(self._request("delete", [key]))

    def num_keys(self) -> int:
        return int(self._request("count", []))

    def close(self) -> None:
        """Close the connection, in a process that continues without the store."""
        self._channel.close()

    def clone(self) -> "RunStore":
        return self

    def _request(
        self, operation: str, keys: list[str], value: Any = None, expected: Any = None
    ) -> Any:
        with self._lock:
            try:
                self._channel.send(json.dumps([operation, keys, value, expected]).encode())
                return json.loads(self._channel.receive())
            except OSError as error:
                raise dist.DistStoreError(f"the run's store is unreachable: {error}") from error


def _encode(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _connect(rendezvous: Rendezvous, seconds: float) -> Channel:
    """Connect to the server, which may start later than this process."""
    deadline = time.monotonic() + seconds
    pause = _MIN_POLL_SECONDS
    while True:
        reason = "it has no address"
        for _, address in list_addresses(rendezvous):
            try:
                connection = socket.create_connection(address[:2], timeout=HANDSHAKE_SECONDS)
            except OSError as error:
                reason = str(error)
                continue
            try:
                return join_peer(connection, rendezvous.secret)
            except OSError as error:
                connection.close()
                reason = str(error)
        if time.monotonic() > deadline:
            raise GpuyardError(
                f"the rendezvous at port {rendezvous.port} of {rendezvous.address} is unreachable from "
                f"{socket.gethostname()}: {reason}; check that this name resolves there and that the port is open "
                "between the hosts"
            )
        time.sleep(pause)
        pause = min(2 * pause, 10 * _MAX_POLL_SECONDS)


def list_addresses(rendezvous: Rendezvous) -> Iterator[tuple[socket.AddressFamily, Any]]:
    """List the possible addresses of the store as seen from any node, most likely first.

    The first node's own name often resolves to its loopback, and behind NAT its public address is not its own. It then
    listens at the address from which it reaches the other nodes, and its own ranks connect there as well.
    """
    resolved = _resolve(rendezvous.address, rendezvous.port)
    reachable = [address for address in resolved if not _is_loopback(address[1][0])]
    yield from reachable
    for other in rendezvous.others:
        for family, address in _resolve(other, rendezvous.port):
            source = _find_source(family, address)
            if source is not None and not _is_loopback(source):
                yield family, (source, rendezvous.port)
    yield from (address for address in resolved if address not in reachable)


def _resolve(name: str, port: int) -> Sequence[tuple[socket.AddressFamily, Any]]:
    try:
        results = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return [(family, address) for family, _, _, _, address in results]


def _find_source(family: socket.AddressFamily, address: Any) -> str | None:
    """Find the local address for connections to this address."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # A datagram socket sends nothing here.
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
