"""Make text safe to display, because names come from files and tables that strangers write.

An escape sequence in a name could move the cursor, set the terminal's title, or fill the clipboard. A right-to-left mark
could reverse a sentence, and a spreadsheet runs cells that begin like a formula. All text that goes to a terminal, page,
picture, or table passes through here.
"""

import csv
import io
import re
from collections.abc import Iterable

# control characters except tab and line feed, Unicode's direction marks, and code points that are not characters
_UNSAFE_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
)
_UNSAFE = re.compile(f"[{_UNSAFE_CHARACTERS}]")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_UNSAFE_IN_LINE = re.compile(f"[{_UNSAFE_CHARACTERS}\t\n\u2028\u2029]")


def make_printable(text: str) -> str:
    """Replace every character that a terminal would obey instead of print with �."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def make_json_printable(text: str) -> str:
    """Escape the characters in JSON that a terminal would obey, which JSON itself allows."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def format_csv(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Format a table for other programs so that no cell is a formula; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_escape_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _escape_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    prefix = "'" if value.startswith(_FORMULA_STARTS) else ""
    return prefix + make_printable(value)


def find_control_character(text: str) -> str | None:
    """Return the first character that is not allowed in a name or line of text, as a readable escape."""
    match = _UNSAFE_IN_LINE.search(text)
    return ascii(match.group()).strip("'") if match else None
