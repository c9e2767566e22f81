"""Read rows of CSV files from other sources: sizes are limited, and errors name the file and line."""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import UserMistake, quote
from gpuyard.files import read_text

MAX_BYTES = 200_000_000
_MAX_ROWS = 2_000_000
_MAX_CELL = 10_000  # characters
_MAX_NUMBER = 1e15


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One row of a table."""

    name: str
    line: int
    cells: Sequence[str]
    columns: dict[str, int]

    def text(self, column: str, default: str = "") -> str:
        index = self.columns.get(column)
        return (self.cells[index].strip() if index is not None else "") or default

    def number(
        self,
        column: str,
        default: float | None = None,
        *,
        minimum: float = 0.0,
        maximum: float = _MAX_NUMBER,
    ) -> float:
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.mistake(column, f"expected a number, got {quote(text)}") from None
        if not (math.isfinite(value) and minimum <= value <= maximum):
            raise self.mistake(column, f"expected {minimum:g} to {maximum:g}, got {quote(text)}")
        return value

    def count(
        self, column: str, default: int | None = None, *, minimum: int = 1, maximum: int = 100_000
    ) -> int:
        value = self.number(column, default, minimum=minimum, maximum=maximum)
        if value != int(value):
            raise self.mistake(column, f"expected a whole number, got {quote(self.text(column))}")
        return int(value)

    def unique_text(self, column: str, lines: dict[str, int], default: str = "") -> str:
        """Return a text that no earlier line has; `lines` records the line of each."""
        text = self.text(column, default)
        if text in lines:
            raise self.mistake(column, f"{quote(text)} is already in line {lines[text]}")
        lines[text] = self.line
        return text

    def mistake(self, column: str, message: str) -> UserMistake:
        return UserMistake(f"{self.name}:{self.line}: {column}: {message}")


def read_rows(path: Path, required: Sequence[str], *, what: str) -> Iterator[TraceRow]:
    """Read a file whose first line names the columns; `what` describes it in errors."""
    yield from parse_rows(read_text(path, max_bytes=MAX_BYTES), str(path), required, what=what)


def parse_rows(
    text: str,
    name: str,
    required: Sequence[str],
    *,
    what: str,
    delimiter: str = ",",
    free_column: str = "",
) -> Iterator[TraceRow]:
    """Parse a table. With a delimiter other than a comma, there are no quoted cells.

    If `free_column` is the last column, its cells may contain delimiters.
    """
    previous_limit = csv.field_size_limit(_MAX_CELL)
    try:
        reader = csv.reader(
            text.splitlines() if delimiter == "," else text.split("\n"),
            delimiter=delimiter,
            strict=True,
            quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
        )
        header = [cell.strip().lower() for cell in next(reader, [])]
        columns = {column: index for index, column in enumerate(header)}
        if any(column not in columns for column in required):
            present = quote(", ".join(header)) if header else "none"
            raise UserMistake(
                f"{name}:1: {what} must have the columns {', '.join(required)}; this file has {present}"
            )
        for cells in reader:
            if reader.line_num > _MAX_ROWS:
                raise UserMistake(f"{name}: more than {_MAX_ROWS:,} rows")
            if not cells:
                continue
            if header[-1] == free_column and len(cells) > len(header):
                cells[len(header) - 1 :] = [delimiter.join(cells[len(header) - 1 :])]
            if len(cells) != len(header):
                raise UserMistake(
                    f"{name}:{reader.line_num}: {len(cells)} cells, but the first line has {len(header)}"
                )
            yield TraceRow(name, reader.line_num, cells, columns)
    except csv.Error as error:
        raise UserMistake(f"{name}:{reader.line_num}: not valid CSV: {error}") from None
    finally:
        csv.field_size_limit(previous_limit)
