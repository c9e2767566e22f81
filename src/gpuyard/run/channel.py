"""An authenticated connection between two processes of one run, which both know the run's secret.

Both sides send a random nonce and answer the other's with an HMAC. The keys for each direction depend on both nonces, and
each message has an HMAC over its sequence number. Without the secret, nobody can join, impersonate a side, or insert, drop,
or repeat a message. The messages are not secret and not encrypted.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import time

MAX_BYTES = 16 * 2**20
"""Maximum size of a message."""
HANDSHAKE_SECONDS = 10.0
_GREETING = b"gpuyard run 1\n"
_NONCE_BYTES = 32
_MAC_BYTES = hashlib.sha256().digest_size
_LENGTH = struct.Struct("!I")
_SEQUENCE_NUMBER = struct.Struct("!Q")


class AuthError(ConnectionError):
    """The peer does not know the secret."""


class Channel:
    """An ordered stream of authenticated messages."""

    def __init__(self, connection: socket.socket, sends: bytes, receives: bytes) -> None:
        self._connection = connection
        self._sending_key, self._receiving_key = sends, receives
        self._sent = self._received = 0

    def close(self) -> None:
        self._connection.close()

    def send(self, message: bytes) -> None:
        if len(message) > MAX_BYTES:
            raise ValueError(f"a message has {len(message)} bytes; the maximum is {MAX_BYTES}")
        mac = _mac(self._sending_key, _SEQUENCE_NUMBER.pack(self._sent), message)
        self._sent += 1
        self._connection.sendall(_LENGTH.pack(len(message)) + message + mac)

    def receive(self) -> bytes:
        (length,) = _LENGTH.unpack(_receive_bytes(self._connection, _LENGTH.size))
        if length > MAX_BYTES:
            raise AuthError(f"a message has {length} bytes; the maximum is {MAX_BYTES}")
        message = _receive_bytes(self._connection, length)
        mac = _mac(self._receiving_key, _SEQUENCE_NUMBER.pack(self._received), message)
        self._received += 1
        if not hmac.compare_digest(_receive_bytes(self._connection, _MAC_BYTES), mac):
            raise AuthError("a message was modified in transit")
        return message


def accept_peer(connection: socket.socket, secret: str) -> Channel:
    """Authenticate as the server; raise AuthError if the peer fails or does not answer in time."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    ours = secrets.token_bytes(_NONCE_BYTES)
    try:
        connection.sendall(_GREETING + ours)
        theirs = _receive_bytes(connection, _NONCE_BYTES, deadline)
        proof = _receive_bytes(connection, _MAC_BYTES, deadline)
    except OSError as error:
        raise AuthError(str(error)) from error
    if not hmac.compare_digest(proof, _mac(secret.encode(), b"joins", ours, theirs)):
        raise AuthError("the peer does not know the run's secret")
    connection.sendall(_mac(secret.encode(), b"keeps", ours, theirs))
    return _create_channel(connection, secret, (ours, theirs), is_client=False)


def join_peer(connection: socket.socket, secret: str) -> Channel:
    """Authenticate as the client; raise AuthError if another program answers."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    ours = secrets.token_bytes(_NONCE_BYTES)
    if _receive_bytes(connection, len(_GREETING), deadline) != _GREETING:
        raise AuthError("another program uses this port")
    theirs = _receive_bytes(connection, _NONCE_BYTES, deadline)
    connection.sendall(ours + _mac(secret.encode(), b"joins", theirs, ours))
    proof = _receive_bytes(connection, _MAC_BYTES, deadline)
    if not hmac.compare_digest(proof, _mac(secret.encode(), b"keeps", theirs, ours)):
        raise AuthError("the server does not know the run's secret")
    return _create_channel(connection, secret, (theirs, ours), is_client=True)


def _create_channel(
    connection: socket.socket, secret: str, nonces: tuple[bytes, bytes], *, is_client: bool
) -> Channel:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    up, down = (_mac(secret.encode(), direction, *nonces) for direction in (b"up", b"down"))
    return Channel(connection, up, down) if is_client else Channel(connection, down, up)


def _mac(key: bytes, *parts: bytes) -> bytes:
    # For each key, the parts have fixed lengths except for our own label, so they are unambiguous.
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def _receive_bytes(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
        chunk = connection.recv(min(size - len(data), 2**16))
        if not chunk:
            raise ConnectionError("connection closed by peer")
        data += chunk
    return bytes(data)
