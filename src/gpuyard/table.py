"""A table as a value, and words that mean something: every room can say what it has in rows.

How it looks is for those who show it: `report/terminal.py`, `report/html.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone = Literal["plain", "strong", "quiet", "accent", "good", "caution", "bad"]
"""What a text means to its reader; each renderer has its own colours for it."""


@dataclass(frozen=True)
class Text:
    """Words that mean something, or a link on a page."""

    text: str
    tone: Tone = "plain"


Words: TypeAlias = str | Text


ALWAYS = -1


@dataclass(frozen=True)
class Column:
    """A column of a table; where the width is short, the one with the largest `drop` goes first."""

    name: str
    drop: int = 0
    """0: it stays as long as any that readers miss less is there; `ALWAYS`: it stays to the last."""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first column names the row."""

    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Words]]
    note: str = ""
    folded: bool = False
    """On a page its title is shown, and the rest when a reader asks for it."""
