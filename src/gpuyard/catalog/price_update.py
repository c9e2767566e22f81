"""Taking in a newer price table: where it comes from, and what it would change."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.prices import Price
from gpuyard.catalog.tables import Table
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import MOST_BYTES, read_text

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class PriceChange:
    """One instance whose price differs."""

    id: str
    before_usd_per_hour: float
    after_usd_per_hour: float


@dataclass(frozen=True)
class PriceUpdate:
    """What a new table does to the one in use."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[PriceChange, ...]
    rows: int


def compare_tables(before: Table[Price], after: Table[Price]) -> PriceUpdate:
    """Row by row, by id."""
    return PriceUpdate(
        added=tuple(name for name in after.ids() if name not in before),
        removed=tuple(name for name in before.ids() if name not in after),
        changed=tuple(
            PriceChange(price.id, before.get(price.id).usd_per_hour, price.usd_per_hour)
            for price in after
            if price.id in before and before.get(price.id).usd_per_hour != price.usd_per_hour
        ),
        rows=len(after),
    )


def read_source(source: str) -> str:
    """The text of a file or of an http(s) address, up to 20 MB."""
    if "://" in source:
        return _fetch(source)
    return read_text(Path(source))


def _fetch(address: str) -> str:
    scheme = urllib.parse.urlsplit(address).scheme.lower()
    if scheme not in {"http", "https"}:
        raise UserMistake(f"{address}: expected an http or https address, got {scheme!r}")
    opener = urllib.request.OpenerDirector()  # without the handlers for files and FTP
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    try:
        with opener.open(address, timeout=_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as refused:
        refused.close()
        raise GpuyardError(f"{address}: the server says {refused.code} {refused.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        raise GpuyardError(f"{address}: can't be fetched: {why}") from None
    if len(body) > MOST_BYTES:
        raise UserMistake(f"{address}: larger than {MOST_BYTES // 1_000_000} MB")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserMistake(f"{address}: this is not text in UTF-8") from None
