"""A file from an http(s) address: whole, of the length that the server says, and no larger than it can be meant to be."""

import http.client
import urllib.error
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.web_client import opener

_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 18

Received = Callable[[int, int | None], None]
"""Called with the bytes that have come so far and all that will, where the server says."""


def download(
    address: str,
    file: BinaryIO,
    *,
    most_bytes: int,
    schemes: Sequence[str] = ("http", "https"),
    received: Received = lambda _received, _total: None,
) -> None:
    """Write what is there into the file. What is cut off, too large or not to be had is a sentence."""
    _check_scheme(address, schemes)
    try:
        with opener(redirects=True).open(address, timeout=_TIMEOUT_SECONDS) as answer:
            _check_scheme(answer.geturl(), schemes)
            _receive(answer, file, address, most_bytes, received)
    except urllib.error.HTTPError as refused:
        refused.close()
        raise GpuyardError(f"{address}: the server says {refused.code} {refused.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GpuyardError(f"{address}: can't be fetched: {reason}") from None


def _receive(
    answer: Any, file: BinaryIO, address: str, most_bytes: int, received: Received
) -> None:
    total = _length(answer, address)
    too_large = UserMistake(f"{address}: larger than {most_bytes // 1_000_000} MB")
    if total is not None and total > most_bytes:
        raise too_large
    count = 0
    while chunk := answer.read(_CHUNK_BYTES):
        count += len(chunk)
        if count > most_bytes:
            raise too_large
        file.write(chunk)
        received(count, total)
    if total is not None and count != total:
        raise GpuyardError(f"{address}: only {count} of {total} bytes came; try again")


def _length(answer: Any, address: str) -> int | None:
    """As the server says it; None where the end of each piece is marked, so that a missing one is noticed."""
    said = answer.headers.get("Content-Length")
    if said is not None and said.isascii() and said.isdecimal() and len(said) < 16:
        return int(said)
    if said is not None:
        raise GpuyardError(
            f"{address}: the server says that its length is {quoted(said)}, expected a number of bytes"
        )
    if "chunked" in answer.headers.get("Transfer-Encoding", "").lower():
        return None
    raise GpuyardError(
        f"{address}: the server does not say how long it is, so that a part could be taken for all of it; "
        "download it another way and name the file"
    )


def _check_scheme(address: str, schemes: Sequence[str]) -> None:
    try:
        scheme = urllib.parse.urlsplit(address).scheme.lower()
    except ValueError as error:
        raise UserMistake(f"{address}: this is no address: {error}") from None
    if scheme not in schemes:
        raise UserMistake(f"{address}: expected an {' or '.join(schemes)} address, got {scheme!r}")
