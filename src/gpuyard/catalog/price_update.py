"""Import a newer price table: read its source, check it, and compare it with the table in use."""

import datetime
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.download import download
from gpuyard.catalog.prices import Price
from gpuyard.catalog.tables import FactTable
from gpuyard.errors import GpuyardError, UserMistake, quote
from gpuyard.files import MAX_BYTES, read_bytes

_MIN_USD, _MAX_USD = 0.001, 1000.0  # per GPU-hour; prices in 2026 are 0.05 to 27
_LARGE_FACTOR = 5.0
_MAX_DOWNLOAD_SECONDS = 60.0


@dataclass(frozen=True)
class PriceChange:
    """An instance whose price differs."""

    id: str
    before_usd_per_hour: float
    after_usd_per_hour: float

    @property
    def is_large(self) -> bool:
        """True if the change is so large that digits may be missing or the unit may be wrong."""
        factor = self.after_usd_per_hour / self.before_usd_per_hour
        return not 1 / _LARGE_FACTOR < factor < _LARGE_FACTOR


@dataclass(frozen=True)
class PriceUpdate:
    """The differences between a new table and the one in use."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[PriceChange, ...]
    rows: int


def compare_tables(before: FactTable[Price], after: FactTable[Price]) -> PriceUpdate:
    """Compare two tables row by row."""
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


def read_source(source: str, sha256: str | None = None) -> str:
    """Return the text of a file or http(s) address, up to 20 MB, and compare its checksum if one is given."""
    if "://" in source:
        buffer = io.BytesIO()
        download(source, buffer, max_bytes=MAX_BYTES, max_seconds=_MAX_DOWNLOAD_SECONDS)
        content = buffer.getvalue()
    else:
        content = read_bytes(Path(source))
    if sha256 is not None:
        _check_sum(content, sha256, source)
    if not content.strip():
        raise UserMistake(f"{source}: the file is empty; expected a price table")
    if not content.endswith(b"\n"):
        raise UserMistake(
            f"{source}: the last line has no newline, so the file may be incomplete; if it is complete, add one"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserMistake(f"{source}: this is not UTF-8 text") from None


def _check_sum(content: bytes, expected: str, source: str) -> None:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise UserMistake(f"--checksum: expected 64 hexadecimal digits, got {quote(expected)}")
    actual = hashlib.sha256(content).hexdigest()
    if actual != expected.lower():
        raise GpuyardError(
            f"{source}: SHA-256 is {actual}, expected {expected.lower()}; the file was changed or is incomplete"
        )


def check_not_in_future(table: FactTable[Price], name: str, today: datetime.date) -> None:
    """Raise if a price has a future date, because it would stay the newest forever."""
    tomorrow = today + datetime.timedelta(days=1)  # other time zones are ahead
    for price in table:
        if price.date > tomorrow:
            raise UserMistake(
                f"{name}: {price.id} has the date {price.date}, which is in the future"
            )


def check_plausible(table: FactTable[Price], name: str) -> None:
    """Raise if a price is implausible, because it would decide every comparison."""
    for price in table:
        for usd_per_hour in (price.usd_per_hour, price.spot_usd_per_hour):
            if usd_per_hour is None:
                continue
            if not _MIN_USD <= usd_per_hour / price.gpus <= _MAX_USD:
                raise UserMistake(
                    f"{name}: {price.id} costs ${usd_per_hour / price.gpus:.3g} per GPU-hour; expected "
                    f"${_MIN_USD:g} to ${_MAX_USD:g}"
                )
