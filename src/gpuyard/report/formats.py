"""Numbers as pages and tables write them; what is not a number is a dash."""

import datetime
import math
from collections.abc import Callable

from gpuyard.units import (
    format_byte_rate,
    format_bytes,
    format_number,
    format_seconds,
    format_usd,
)

NOTHING = "–"

_WRITERS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "bytes/s": format_byte_rate,
    "seconds": format_seconds,
}


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def number(value: float | None) -> str:
    """1234.5 → "1,234"; small ones keep three digits."""
    if value is None or _missing(value):
        return NOTHING
    return format_number(value)


def percent(share: float | None) -> str:
    """0.871 → "87 %"."""
    return NOTHING if share is None or _missing(share) else f"{100 * share:.0f} %"


def gain(factor: float) -> str:
    """1.5 → "+50 %"; from three times on as a factor."""
    if _missing(factor):
        return NOTHING
    return f"× {factor:.1f}" if factor >= 3 else f"{100 * (factor - 1):+.0f} %".replace("-", "−")


def seconds(value: float | None) -> str:
    """0.0032 → "3.2 ms"; nothing at all has no unit."""
    if value is None or _missing(value):
        return NOTHING
    return format_seconds(value) if value else "0"


def size(value: float | None) -> str:
    """46e6 → "46 MB"."""
    return NOTHING if value is None or _missing(value) else format_bytes(value)


def usd(value: float | None) -> str:
    """8000 → "$8,000"."""
    return NOTHING if value is None or _missing(value) else format_usd(value)


def constant(value: float, unit: str) -> str:
    """A constant with its unit: 3e-05 "seconds a layer" → "30 µs a layer"."""
    if _missing(value):
        return NOTHING
    base, _, rest = unit.partition(" ")
    if base in _WRITERS:
        return f"{_WRITERS[base](value)} {rest}".strip()
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.4g} {unit}"


def date(created_at: str) -> str:
    """ISO 8601 as people write it; what does not parse stays as it is."""
    try:
        moment = datetime.datetime.fromisoformat(created_at)
    except ValueError:
        return created_at
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"
