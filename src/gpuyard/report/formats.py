"""Formats numbers for pages and tables; a missing or non-finite number becomes a dash."""

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

MISSING = "–"

_FORMATTERS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "bytes/s": format_byte_rate,
    "seconds": format_seconds,
}


def _is_missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def number(value: float | None) -> str:
    """Format 1234.5 as "1,234"; small numbers keep three digits."""
    if value is None or _is_missing(value):
        return MISSING
    return format_number(value)


def percent(share: float | None) -> str:
    """Format 0.871 as "87%"."""
    return MISSING if share is None or _is_missing(share) else f"{100 * share:.0f}%"


def gain(factor: float) -> str:
    """Format 1.5 as "+50%"; a factor of 3 or more becomes "× 3.0"."""
    if _is_missing(factor):
        return MISSING
    return f"× {factor:.1f}" if factor >= 3 else f"{100 * (factor - 1):+.0f}%".replace("-", "−")


def seconds(value: float | None) -> str:
    """Format 0.0032 as "3.2 ms"; zero has no unit."""
    if value is None or _is_missing(value):
        return MISSING
    return format_seconds(value) if value else "0"


def size(value: float | None) -> str:
    """Format 46e6 as "46 MB"."""
    return MISSING if value is None or _is_missing(value) else format_bytes(value)


def elapsed(seconds: float | None) -> str:
    """Format the time since something began, in whole seconds or more; "" if it has not begun."""
    return "" if seconds is None else format_seconds(max(1.0, round(seconds)))


def usd(value: float | None) -> str:
    """Format 8000 as "$8,000"."""
    return MISSING if value is None or _is_missing(value) else format_usd(value)


def constant(value: float, unit: str) -> str:
    """Format a constant with its unit: 3e-05 "seconds per layer" becomes "30 µs per layer"."""
    if _is_missing(value):
        return MISSING
    base, _, rest = unit.partition(" ")
    if base in _FORMATTERS:
        return f"{_FORMATTERS[base](value)} {rest}".strip()
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.4g} {unit}"


def date(created_at: str) -> str:
    """Format an ISO 8601 time for people; text that does not parse is returned unchanged."""
    try:
        time = datetime.datetime.fromisoformat(created_at)
    except ValueError:
        return created_at
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"
