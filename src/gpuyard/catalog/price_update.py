"""Taking in a newer price table: where it comes from, and what it would change."""

import datetime
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.download import download
from gpuyard.catalog.prices import Price
from gpuyard.catalog.tables import FactTable
from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.files import MOST_BYTES, read_bytes

_LEAST_USD, _MOST_USD = 0.001, 1000.0  # a GPU-hour; in 2026 they cost 0.05 to 27
_LARGE_FACTOR = 5.0


@dataclass(frozen=True)
class PriceChange:
    """One instance whose price differs."""

    id: str
    before_usd_per_hour: float
    after_usd_per_hour: float

    @property
    def is_large(self) -> bool:
        """As a price is whose digits were cut off, or that stands in another unit."""
        factor = self.after_usd_per_hour / self.before_usd_per_hour
        return not 1 / _LARGE_FACTOR < factor < _LARGE_FACTOR


@dataclass(frozen=True)
class PriceUpdate:
    """What a new table does to the one in use."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[PriceChange, ...]
    rows: int


def compare_tables(before: FactTable[Price], after: FactTable[Price]) -> PriceUpdate:
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


def read_source(source: str, sha256: str | None = None) -> str:
    """The text of a file or of an http(s) address, up to 20 MB, with this checksum if one is known."""
    if "://" in source:
        arrived = io.BytesIO()
        download(source, arrived, most_bytes=MOST_BYTES)
        content = arrived.getvalue()
    else:
        content = read_bytes(Path(source))
    if sha256 is not None:
        _check_sum(content, sha256, source)
    if not content.strip():
        raise UserMistake(f"{source}: there is nothing in it; expected a table of prices")
    if not content.endswith(b"\n"):
        raise UserMistake(
            f"{source}: its last line has no end, so it may be cut off; if it is whole, add a line feed"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserMistake(f"{source}: this is not text in UTF-8") from None


def _check_sum(content: bytes, expected: str, source: str) -> None:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise UserMistake(f"--checksum: expected 64 hexadecimal digits, got {quoted(expected)}")
    found = hashlib.sha256(content).hexdigest()
    if found != expected.lower():
        raise GpuyardError(
            f"{source}: its SHA-256 is {found}, expected {expected.lower()}; it was changed or cut off on its way"
        )


def check_newer(table: FactTable[Price], name: str, today: datetime.date) -> None:
    """No price is of a day to come: it would pass for the newest forever."""
    tomorrow = today + datetime.timedelta(days=1)  # it begins earlier elsewhere
    for price in table:
        if price.date > tomorrow:
            raise UserMistake(
                f"{name}: {price.id} has the date {price.date}, which is still to come"
            )


def check_plausible(table: FactTable[Price], name: str) -> None:
    """Nobody rents a GPU at such a price: every comparison would be won or lost by it."""
    for price in table:
        for usd_per_hour in (price.usd_per_hour, price.spot_usd_per_hour):
            if usd_per_hour is None:
                continue
            if not _LEAST_USD <= usd_per_hour / price.gpus <= _MOST_USD:
                raise UserMistake(
                    f"{name}: {price.id} costs ${usd_per_hour / price.gpus:.3g} a GPU-hour; expected "
                    f"${_LEAST_USD:g} to ${_MOST_USD:g}"
                )
