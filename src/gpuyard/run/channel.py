"""A connection between two processes of one run, each of which has proved that it knows the run's secret.

Both sides send a random number and answer the other's with an HMAC; keys for each direction follow from both, and
every message has an HMAC with its number. So who does not know the secret can neither join, nor pose as the one
that is joined, nor slip a message in, drop one, or repeat one. What is said is not secret, and not encrypted.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import time

MOST_BYTES = 16 * 2**20
"""Of one message."""
HANDSHAKE_SECONDS = 10.0
_GREETING = b"gpuyard run 1\n"
_NONCE_BYTES = 32
_MAC_BYTES = hashlib.sha256().digest_size
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")


class NotOfThisRun(ConnectionError):
    """Whoever is at the other end does not know the secret."""


class Channel:
    """Messages that can't be forged, in order."""

    def __init__(self, connection: socket.socket, sends: bytes, receives: bytes) -> None:
        self._connection = connection
        self._sending_key, self._receiving_key = sends, receives
        self._sent = self._received = 0

    def close(self) -> None:
        self._connection.close()

    def send(self, message: bytes) -> None:
        if len(message) > MOST_BYTES:
            raise ValueError(f"a message of {len(message)} bytes is more than {MOST_BYTES}")
        mac = _mac(self._sending_key, _NUMBER.pack(self._sent), message)
        self._sent += 1
        self._connection.sendall(_LENGTH.pack(len(message)) + message + mac)

    def receive(self) -> bytes:
        (length,) = _LENGTH.unpack(_take(self._connection, _LENGTH.size))
        if length > MOST_BYTES:
            raise NotOfThisRun(f"a message of {length} bytes is more than {MOST_BYTES}")
        message = _take(self._connection, length)
        mac = _mac(self._receiving_key, _NUMBER.pack(self._received), message)
        self._received += 1
        if not hmac.compare_digest(_take(self._connection, _MAC_BYTES), mac):
            raise NotOfThisRun("a message was changed on its way")
        return message


def admit(connection: socket.socket, secret: str) -> Channel:
    """The side that is connected to. Raises NotOfThisRun; who knocks and says nothing is let wait a little."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    ours = secrets.token_bytes(_NONCE_BYTES)
    try:
        connection.sendall(_GREETING + ours)
        theirs = _take(connection, _NONCE_BYTES, deadline)
        proof = _take(connection, _MAC_BYTES, deadline)
    except OSError as error:
        raise NotOfThisRun(str(error)) from error
    if not hmac.compare_digest(proof, _mac(secret.encode(), b"joins", ours, theirs)):
        raise NotOfThisRun("it does not know the secret")
    connection.sendall(_mac(secret.encode(), b"keeps", ours, theirs))
    return _channel(connection, secret, (ours, theirs), joins=False)


def join(connection: socket.socket, secret: str) -> Channel:
    """The side that connects. Raises NotOfThisRun where another program answers."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    ours = secrets.token_bytes(_NONCE_BYTES)
    if _take(connection, len(_GREETING), deadline) != _GREETING:
        raise NotOfThisRun("another program answers there")
    theirs = _take(connection, _NONCE_BYTES, deadline)
    connection.sendall(ours + _mac(secret.encode(), b"joins", theirs, ours))
    proof = _take(connection, _MAC_BYTES, deadline)
    if not hmac.compare_digest(proof, _mac(secret.encode(), b"keeps", theirs, ours)):
        raise NotOfThisRun("who answers there does not know the run's secret")
    return _channel(connection, secret, (theirs, ours), joins=True)


def _channel(
    connection: socket.socket, secret: str, nonces: tuple[bytes, bytes], *, joins: bool
) -> Channel:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    up, down = (_mac(secret.encode(), direction, *nonces) for direction in (b"up", b"down"))
    return Channel(connection, up, down) if joins else Channel(connection, down, up)


def _mac(key: bytes, *parts: bytes) -> bytes:
    # under one key the parts have the same lengths but for a label of our own, so none can pass for others
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def _take(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    taken = bytearray()
    while len(taken) < size:
        if deadline is not None:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
        more = connection.recv(min(size - len(taken), 2**16))
        if not more:
            raise ConnectionError("connection closed by peer")
        taken += more
    return bytes(taken)
