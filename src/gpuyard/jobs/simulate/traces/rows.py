"""Rows of a CSV that somebody else wrote: bounded, and what is wrong is said with file and line."""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import UserMistake, quoted
from gpuyard.files import read_text

MOST_BYTES = 200_000_000
_MOST_ROWS = 2_000_000
_LONGEST_CELL = 10_000  # characters
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a table."""

    name: str
    line: int
    cells: Sequence[str]
    columns: dict[str, int]

    def text(self, column: str, otherwise: str = "") -> str:
        at = self.columns.get(column)
        found = self.cells[at].strip() if at is not None else ""
        return found or otherwise

    def number(
        self,
        column: str,
        otherwise: float | None = None,
        *,
        least: float = 0.0,
        most: float = _MOST,
    ) -> float:
        text = self.text(column)
        if not text and otherwise is not None:
            return otherwise
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(column, f"expected a number, got {quoted(text)}") from None
        if not (math.isfinite(value) and least <= value <= most):
            raise self.wrong(column, f"expected {least:g} to {most:g}, got {quoted(text)}")
        return value

    def count(
        self, column: str, otherwise: int | None = None, *, least: int = 1, most: int = 100_000
    ) -> int:
        value = self.number(column, otherwise, least=least, most=most)
        if value != int(value):
            raise self.wrong(column, f"expected a whole number, got {quoted(self.text(column))}")
        return int(value)

    def new(self, column: str, lines: dict[str, int], otherwise: str = "") -> str:
        """Its text, which no line before had; `lines` are those by text."""
        text = self.text(column, otherwise)
        if text in lines:
            raise self.wrong(column, f"{quoted(text)} is in line {lines[text]} already")
        lines[text] = self.line
        return text

    def wrong(self, column: str, what: str) -> UserMistake:
        return UserMistake(f"{self.name}:{self.line}: {column}: {what}")


def read_rows(path: Path, needed: Sequence[str], *, what: str) -> Iterator[TraceRow]:
    """Of a file whose first line names the columns."""
    yield from rows_of(read_text(path, most_bytes=MOST_BYTES), str(path), needed, what=what)


def rows_of(
    text: str, name: str, needed: Sequence[str], *, what: str, delimiter: str = ",", free: str = ""
) -> Iterator[TraceRow]:
    """The same of a text. Where the delimiter is no comma, nothing is quoted; a column `free` may have delimiters in
    it if it is the last."""
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(
            text.splitlines() if delimiter == "," else text.split("\n"),
            delimiter=delimiter,
            strict=True,
            quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
        )
        header = [cell.strip().lower() for cell in next(reader, [])]
        columns = {column: at for at, column in enumerate(header)}
        missing = [column for column in needed if column not in columns]
        if missing:
            has = quoted(", ".join(header)) if header else "nothing"
            raise UserMistake(
                f"{name}:1: {what} has the columns {', '.join(needed)}; this one has {has}"
            )
        for cells in reader:
            if reader.line_num > _MOST_ROWS:
                raise UserMistake(f"{name}: more than {_MOST_ROWS:,} rows")
            if not cells:
                continue
            if header[-1] == free and len(cells) > len(header):
                cells[len(header) - 1 :] = [delimiter.join(cells[len(header) - 1 :])]
            if len(cells) != len(header):
                raise UserMistake(
                    f"{name}:{reader.line_num}: {len(cells)} cells, the first line has {len(header)}"
                )
            yield TraceRow(name, reader.line_num, cells, columns)
    except csv.Error as error:
        raise UserMistake(f"{name}:{reader.line_num}: this is not CSV: {error}") from None
    finally:
        csv.field_size_limit(before)
