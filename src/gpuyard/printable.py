"""Text that is safe to show: names come from files and tables that strangers write.

An escape sequence in a name could move the cursor, set the title or fill the clipboard of whoever looks at
it, a right-to-left mark could turn a sentence around, and a spreadsheet runs what begins like a formula.
Everything that goes to a terminal, a page, a picture or a table passes here.
"""

import csv
import io
import re
from collections.abc import Iterable

# control characters but tab and line feed; what Unicode has for turning text around; what no text may have
_OBEYED = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
)
_UNSAFE = re.compile(f"[{_OBEYED}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NOT_IN_A_LINE = re.compile(f"[{_OBEYED}\t\n\u2028\u2029]")


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, not print, shown as �."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def printable_json(text: str) -> str:
    """The same JSON with what a terminal would obey, which JSON lets pass, as escapes."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table for other programs, in which no cell is a formula; None is an empty cell."""
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(columns)
    written.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULA) else printable(value)


def control_character(text: str) -> str | None:
    """The first character that has no place in a name or in one line of text, as people can read it."""
    found = _NOT_IN_A_LINE.search(text)
    return ascii(found.group()).strip("'") if found else None
