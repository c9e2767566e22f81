"""Tables and styled text as values, so that every package can describe its results in rows.

`report/terminal.py` and `report/html.py` decide how they look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone = Literal["plain", "strong", "quiet", "accent", "good", "caution", "bad"]
"""The meaning of a text for its reader; each renderer has its own colors for it."""


@dataclass(frozen=True)
class Text:
    """A text with a tone."""

    text: str
    tone: Tone = "plain"


StyledText: TypeAlias = str | Text


ALWAYS = -1


@dataclass(frozen=True)
class Column:
    """A column of a table; if the terminal is narrow, the column with the largest `drop` is left out first."""

    name: str
    drop: int = 0
    """0: dropped only after all columns with a larger value; `ALWAYS`: never dropped."""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first column names the row."""

    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[StyledText]]
    note: str = ""
    folded: bool = False
    """On a page, only the title is visible until the reader opens the table."""
