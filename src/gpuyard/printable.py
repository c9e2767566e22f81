"""Text that is safe to show: names come from files and tables that strangers write.

An escape sequence in a name could move the cursor, set the title or fill the clipboard of whoever looks at
it, and a right-to-left mark could turn a sentence around. Everything that goes to a terminal, a page or a
picture passes here.
"""

import re

# control characters but tab and line feed; what Unicode has for turning text around; what no text may have
_OBEYED = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
)
_UNSAFE = re.compile(f"[{_OBEYED}]")
_NOT_IN_A_LINE = re.compile(f"[{_OBEYED}\t\n\u2028\u2029]")


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, not print, shown as �."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def control_character(text: str) -> str | None:
    """The first character that has no place in a name or in one line of text, as people can read it."""
    found = _NOT_IN_A_LINE.search(text)
    return ascii(found.group()).strip("'") if found else None
