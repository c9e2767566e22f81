"""Numbers as people write them in tables: `~15000`, `15k`, `1,234`, `40%`, or `32k` tokens."""

import math
import re
from collections.abc import Mapping

from gpuyard.errors import UserMistake

_NUMBER = re.compile(r"(\d[\d,_]*(?:\.\d+)?|\.\d+)(e[+-]?\d{1,3})?\s*([a-z%]*)", re.IGNORECASE)
_THOUSANDS = re.compile(r"\d{1,3}([,_]\d{3})+(\.\d+)?")
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9}
_MAX_NUMBER = 10**12
_MAX_DIGITS = 30


def read_number(text: str, kilo: float = 1000.0) -> float | None:
    """Return the number at the start of a cell with its unit of thousands, or None if there is none."""
    match = _NUMBER.match(text.strip().lstrip("~≈≃<>=$ +"))
    if match is None or len(match[0]) > _MAX_DIGITS:
        return None
    digits = match[1]
    if "," in digits and not _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", ".", 1)  # a decimal comma
    try:
        number = float(digits.replace(",", "").replace("_", "") + (match[2] or ""))
    except ValueError:
        return None
    unit = match[3].lower()
    scale = kilo ** (1 + "kmb".index(unit)) if unit in _SCALES else 1.0
    return number * scale if math.isfinite(number * scale) else None


def read_integer(
    cells: Mapping[str, str], name: str, default: int | None = None, kilo: int = 1000
) -> int:
    """Return the first number in a cell, or the default if the cell does not state one."""
    text = cells.get(name, "")
    start = re.search(r"\d", text)
    number = read_number(text[start.start() :], kilo) if start else None
    if number is None or (default is not None and text.startswith(">")):
        if default is None:
            raise UserMistake(f"{name} is missing" if not start else f"{name} is not a number")
        return default
    if number > _MAX_NUMBER:
        raise UserMistake(f"{name} is larger than {_MAX_NUMBER:,}")
    return int(number)
