"""Find the square tables of `nvidia-smi topo` between prompts, legends, and other lines, and read their cells.

Each cell keeps its line and column for error messages.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from gpuyard.errors import UserMistake, closest_name, quote

# nvidia-smi underlines its header; text copied from a web page may lack the escape character itself
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|(?<!\S)\[\d+(;\d+)*m|\[0m")
# CPU0, HB0, and SW0 are reserved for other devices of the graph
_DEVICE = re.compile(r"(?!(?:CPU|HB|SW)\d+$)[A-Za-z][\w.\-]*\d[\w.\-]*")
_GPU = re.compile(r"GPU\d+")
_COLUMNS_AFTER_DEVICES = ("CPU", "NUMA", "GPU")
_MAX_NAME_LENGTH = 64
_MAX_DEVICES, _MAX_GPUS = 128, 72
_MAX_CHARACTERS = 500_000  # the largest table has 200,000
_AFFINITY = re.compile(r"\d[\d,\-]*|N/A")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text with its line and column, counted from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class CellFormat:
    """The name and the allowed values of a table's cells."""

    name: str
    pattern: re.Pattern[str]
    examples: tuple[str, ...]

    def allows(self, word: str) -> bool:
        return self.pattern.fullmatch(word) is not None


LINK_CLASSES = CellFormat(
    "link class",
    re.compile(r"X|NV[1-9]\d{0,2}|PIX|PXB|PHB|NODE|SYS|SOC"),
    ("X", "NV1", "NV2", "NV4", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"),
)
PEER_STATUSES = CellFormat(
    "peer status",
    re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U"),
    ("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"),
)


@dataclass(frozen=True)
class MatrixText:
    """The words of one table: the devices of its header, and its rows."""

    source: str
    header: Word  # the whole header line
    devices: tuple[Word, ...]
    rows: tuple[tuple[Word, ...], ...]

    def contains(self, cell_format: CellFormat) -> bool:
        """Return whether any cell outside the diagonal has this format."""
        return any(
            cell_format.allows(word.text) and word.text != "X"
            for row in self.rows
            for word in row[1:]
        )

    def read(self, cell_format: CellFormat) -> dict[tuple[str, str], Word]:
        """Return every cell by row and column; raise `UserMistake` if the table is incomplete."""
        names = [device.text for device in self.devices]
        for device in self.devices:
            if names.count(device.text) > 1:
                raise create_error(
                    self.source, device, f"{device.text} appears twice in the header"
                )
        cells: dict[tuple[str, str], Word] = {}
        row_names: set[str] = set()
        for name, *words in self.rows:
            if name.text not in names:
                raise create_error(
                    self.source, name, f"row {name.text} has no column in the header"
                )
            if name.text in row_names:
                raise create_error(self.source, name, f"row {name.text} appears twice")
            row_names.add(name.text)
            row = self._read_row(name, words, cell_format)
            for column, word in zip(names, row, strict=True):
                cells[name.text, column] = word
        self._check_missing_rows(row_names)
        return cells

    def _read_row(self, name: Word, words: list[Word], cell_format: CellFormat) -> list[Word]:
        expected = len(self.devices)
        for count, word in enumerate(words[:expected]):
            if cell_format.allows(word.text):
                continue
            if _AFFINITY.fullmatch(word.text):
                raise create_error(
                    self.source, word, f"row {name.text} has {count} of {expected} cells"
                )
            reason = _explain_bad_cell(word.text, cell_format)
            column = self.devices[count].text
            raise create_error(self.source, word, f"{reason} (row {name.text}, column {column})")
        if len(words) < expected:
            last = words[-1] if words else name
            end = Word("", last.line, last.column + len(last.text))
            raise create_error(
                self.source, end, f"row {name.text} has {len(words)} of {expected} cells"
            )
        if len(words) > expected and cell_format.allows(words[expected].text):
            extra = words[expected]
            raise create_error(
                self.source, extra, f"row {name.text} has more than {expected} cells"
            )
        for device, word in zip(self.devices, words, strict=False):
            if (device.text == name.text) != (word.text == "X"):
                raise create_error(
                    self.source,
                    word,
                    f"{quote(word.text)} in row {name.text}, column {device.text}: "
                    "'X' must mark the diagonal and nothing else",
                )
        return words[:expected]

    def _check_missing_rows(self, row_names: set[str]) -> None:
        missing = [device for device in self.devices if device.text not in row_names]
        if missing:
            names = ", ".join(device.text for device in missing)
            raise create_error(
                self.source,
                missing[0],
                f"the header lists {len(self.devices)} devices, but "
                + (f"row {names} is missing" if len(missing) == 1 else f"rows {names} are missing"),
            )


def create_error(source: str, word: Word, message: str) -> UserMistake:
    """Create an error that starts with the position of a word."""
    return UserMistake(f"{source}:{word.line}:{word.column}: {message}")


def strip_colors(text: str) -> list[str]:
    """Return the lines without color codes; all other characters keep their columns."""
    return [
        _COLOR.sub(lambda code: " " * len(code[0]), line)
        for line in text.removeprefix("\ufeff").splitlines()
    ]


def find_matrix(text: str, source: str, cell_format: CellFormat, command: str) -> MatrixText:
    """Return the first table with cells of this format, or the first table if there is none."""
    tables = list(find_matrices(text, source))
    if not tables:
        raise UserMistake(
            f"{source}:1:1: table of `{command}` not found; expected a header with GPU0 and the other "
            "devices, and a row for each"
        )
    return next((table for table in tables if table.contains(cell_format)), tables[0])


def find_matrices(text: str, source: str) -> Iterator[MatrixText]:
    """Yield every table that has a header and at least one row."""
    plain_lines = strip_colors(text)
    lines: list[tuple[Word, ...]] = []
    headers, characters = [], 0
    for number, line in enumerate(plain_lines, start=1):
        characters += len(line) + 1
        if characters > _MAX_CHARACTERS:
            raise UserMistake(f"{source}:{number}:1: more than {_MAX_CHARACTERS:,} characters")
        lines.append(_split_words(line, number))
        if _is_header(lines[-1]):
            # checked before the rows are read, which takes long for a huge table
            _check_device_counts(_header_devices(lines[-1]), source)
            headers.append(number - 1)
    for i, end in zip(headers, [*headers[1:], len(lines)], strict=False):
        devices = _header_devices(lines[i])
        rows = tuple(_find_rows(lines[i + 1 : end], {device.text for device in devices}))
        if rows:
            yield MatrixText(source, Word(plain_lines[i], i + 1, 1), devices, rows)


def _check_device_counts(devices: tuple[Word, ...], source: str) -> None:
    gpus = sum(_GPU.fullmatch(device.text) is not None for device in devices)
    for noun, count, maximum in (
        ("devices", len(devices), _MAX_DEVICES),
        ("GPUs", gpus, _MAX_GPUS),
    ):
        if count > maximum:
            raise create_error(
                source,
                devices[0],
                f"one machine has at most {maximum} {noun}, this table has {count}",
            )


def _find_rows(lines: list[tuple[Word, ...]], names: set[str]) -> Iterator[tuple[Word, ...]]:
    """Yield the rows up to the legend; rows with an unknown name are included, for the error message."""
    for words in lines:
        if not words:
            continue
        if words[0].text.lower().startswith("legend"):
            return
        misnamed = len(words) > 1 and _is_device(words[0].text) and _is_cell(words[1].text)
        if words[0].text in names or misnamed:
            yield words


def _is_header(words: tuple[Word, ...]) -> bool:
    devices = _header_devices(words)
    if not devices or not _GPU.fullmatch(devices[0].text):
        return False
    after = words[len(devices) :]
    return not after or after[0].text in _COLUMNS_AFTER_DEVICES


def _header_devices(words: tuple[Word, ...]) -> tuple[Word, ...]:
    return tuple(takewhile(lambda w: _is_device(w.text) and not LINK_CLASSES.allows(w.text), words))


def _is_device(word: str) -> bool:
    return len(word) <= _MAX_NAME_LENGTH and _DEVICE.fullmatch(word) is not None


def _is_cell(word: str) -> bool:
    return LINK_CLASSES.allows(word) or PEER_STATUSES.allows(word)


def _split_words(line: str, number: int) -> tuple[Word, ...]:
    return tuple(Word(m[0], number, m.start() + 1) for m in re.finditer(r"\S+", line))


def _explain_bad_cell(word: str, cell_format: CellFormat) -> str:
    problem = f"{quote(word)} is not a {cell_format.name}"
    for cut in range(1, min(len(word), _MAX_NAME_LENGTH)):
        if cell_format.allows(word[:cut]) and cell_format.allows(word[cut:]):
            return f"{problem}; {word[:cut]!r} and {word[cut:]!r} need a space between them"
    similar = (example for example in cell_format.examples if _differs_by_one(word, example))
    closest = next(similar, None) or closest_name(word, cell_format.examples)
    if closest:
        return f"{problem}; did you mean {closest!r}?"
    return f"{problem}; expected one of: {', '.join(cell_format.examples)}"


def _differs_by_one(word: str, example: str) -> bool:
    """Return whether two words of the same length differ in one letter."""
    same_length = len(word) == len(example) > 2
    return same_length and sum(a != b for a, b in zip(word, example, strict=True)) == 1
