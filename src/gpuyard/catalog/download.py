"""Download a file over http(s), and check that it is complete and no larger than a limit."""

import http.client
import urllib.error
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from gpuyard.errors import GpuyardError, UserMistake, quote
from gpuyard.web_client import build_opener, call_within

_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 18

OnProgress = Callable[[int, int | None], None]
"""A callback with the number of bytes received and the total, which is None if unknown."""


def download(
    address: str,
    file: BinaryIO,
    *,
    max_bytes: int,
    max_seconds: float,
    schemes: Sequence[str] = ("http", "https"),
    on_progress: OnProgress = lambda _received, _total: None,
) -> None:
    """Write the content at the address to the file. Raise if it is incomplete, too large, too slow, or unreachable."""
    _check_scheme(address, schemes)

    def receive() -> None:
        with build_opener(redirects=True).open(address, timeout=_TIMEOUT_SECONDS) as response:
            _check_scheme(response.geturl(), schemes)
            _receive(response, file, address, max_bytes, on_progress)

    try:
        call_within(max_seconds, receive)
    except urllib.error.HTTPError as error:
        error.close()
        raise GpuyardError(f"{address}: the server replied {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GpuyardError(f"{address}: cannot be downloaded: {reason}") from None


def _receive(
    response: Any, file: BinaryIO, address: str, max_bytes: int, on_progress: OnProgress
) -> None:
    total = _get_length(response, address)
    too_large = UserMistake(f"{address}: larger than {max_bytes // 1_000_000} MB")
    if total is not None and total > max_bytes:
        raise too_large
    count = 0
    while chunk := response.read(_CHUNK_BYTES):
        count += len(chunk)
        if count > max_bytes:
            raise too_large
        file.write(chunk)
        on_progress(count, total)
    if total is not None and count != total:
        raise GpuyardError(f"{address}: received only {count} of {total} bytes; try again")


def _get_length(response: Any, address: str) -> int | None:
    """Return the length from the server, or None with chunked transfer, where a missing chunk is an error."""
    length = response.headers.get("Content-Length")
    if length is not None and length.isascii() and length.isdecimal() and len(length) < 16:
        return int(length)
    if length is not None:
        raise GpuyardError(
            f"{address}: the server's Content-Length is {quote(length)}, expected a number of bytes"
        )
    if "chunked" in response.headers.get("Transfer-Encoding", "").lower():
        return None
    raise GpuyardError(
        f"{address}: the server does not report the length, so gpuyard could not detect an incomplete download; "
        "download it another way and name the file"
    )


def _check_scheme(address: str, schemes: Sequence[str]) -> None:
    try:
        scheme = urllib.parse.urlsplit(address).scheme.lower()
    except ValueError as error:
        raise UserMistake(f"{address}: this is not an address: {error}") from None
    if scheme not in schemes:
        raise UserMistake(f"{address}: expected an {' or '.join(schemes)} address, got {scheme!r}")
