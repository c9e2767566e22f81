"""The square tables that `nvidia-smi topo` prints: finds them between prompts, legends and other lines, and
reads their cells, each with its line and column for the message when one is wrong."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from gpuyard.errors import UserMistake, closest_name, quoted

# nvidia-smi underlines its header; what was copied from a web page may have lost the escape itself
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|(?<!\S)\[\d+(;\d+)*m|\[0m")
# CPU0, HB0 and SW0 are names that the graph needs
_DEVICE = re.compile(r"(?!(?:CPU|HB|SW)\d+$)[A-Za-z][\w.\-]*\d[\w.\-]*")
_GPU = re.compile(r"GPU\d+")
_AFTER_DEVICES = ("CPU", "NUMA", "GPU")
_LONGEST_NAME = 64
_MOST_DEVICES, _MOST_GPUS = 128, 72
_MOST_CHARACTERS = 500_000  # the largest table has 200,000
_NOT_A_CELL = re.compile(r"\d[\d,\-]*|N/A")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text and where it stands, counted from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Cells:
    """What may stand in the cells of a table, and what such a cell is called."""

    what: str
    pattern: re.Pattern[str]
    examples: tuple[str, ...]

    def allow(self, word: str) -> bool:
        return self.pattern.fullmatch(word) is not None


LINK_CLASSES = Cells(
    "link class",
    re.compile(r"X|NV[1-9]\d{0,2}|PIX|PXB|PHB|NODE|SYS|SOC"),
    ("X", "NV1", "NV2", "NV4", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"),
)
PEER_STATUSES = Cells(
    "peer status",
    re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U"),
    ("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"),
)


@dataclass(frozen=True)
class MatrixText:
    """One table as it was found: devices of the header, and the lines of its rows."""

    source: str
    header: Word  # the whole header line
    devices: tuple[Word, ...]
    rows: tuple[tuple[Word, ...], ...]

    def holds(self, cells: Cells) -> bool:
        """Whether some cell besides the diagonal belongs to this kind of table."""
        return any(cells.allow(w.text) and w.text != "X" for row in self.rows for w in row[1:])

    def read(self, cells: Cells) -> dict[tuple[str, str], Word]:
        """Every cell by row and column; a `UserMistake` where the table is not whole."""
        names = [device.text for device in self.devices]
        for device in self.devices:
            if names.count(device.text) > 1:
                raise mistake(self.source, device, f"{device.text} appears twice in the header")
        found: dict[tuple[str, str], Word] = {}
        seen: set[str] = set()
        for name, *words in self.rows:
            if name.text not in names:
                raise mistake(self.source, name, f"row {name.text} has no column in the header")
            if name.text in seen:
                raise mistake(self.source, name, f"row {name.text} appears twice")
            seen.add(name.text)
            for column, word in zip(names, self._row(name, words, cells), strict=True):
                found[name.text, column] = word
        self._refuse_missing(seen)
        return found

    def _row(self, name: Word, words: list[Word], cells: Cells) -> list[Word]:
        wanted = len(self.devices)
        for count, word in enumerate(words[:wanted]):
            if cells.allow(word.text):
                continue
            if _NOT_A_CELL.fullmatch(word.text):
                raise mistake(self.source, word, f"row {name.text} has {count} of {wanted} cells")
            column = self.devices[count].text
            raise mistake(
                self.source,
                word,
                f"{_not_a_cell(word.text, cells)} (row {name.text}, column {column})",
            )
        if len(words) < wanted:
            end = words[-1] if words else name
            raise mistake(
                self.source,
                _after(end),
                f"row {name.text} has {len(words)} of {wanted} cells",
            )
        if len(words) > wanted and cells.allow(words[wanted].text):
            extra = words[wanted]
            raise mistake(self.source, extra, f"row {name.text} has more than {wanted} cells")
        for device, word in zip(self.devices, words, strict=False):
            if (device.text == name.text) != (word.text == "X"):
                raise mistake(
                    self.source, word,
                    f"{quoted(word.text)} in row {name.text}, column {device.text}: "
                    "'X' marks a device itself, on the diagonal and nowhere else",
                )  # fmt: skip
        return words[:wanted]

    def _refuse_missing(self, seen: set[str]) -> None:
        missing = [device for device in self.devices if device.text not in seen]
        if missing:
            names = ", ".join(device.text for device in missing)
            raise mistake(
                self.source, missing[0],
                f"the header lists {len(self.devices)} devices, but "
                + (f"row {names} is missing" if len(missing) == 1 else f"rows {names} are missing"),
            )  # fmt: skip


def mistake(source: str, where: Word, sentence: str) -> UserMistake:
    return UserMistake(f"{source}:{where.line}:{where.column}: {sentence}")


def plain_lines(text: str) -> list[str]:
    """The lines without colours; every character that stays keeps its column."""
    return [
        _COLOUR.sub(lambda code: " " * len(code[0]), line)
        for line in text.removeprefix("\ufeff").splitlines()
    ]


def find_matrix(text: str, source: str, cells: Cells, command: str) -> MatrixText:
    """The first table with cells of this kind, else the first table at all."""
    tables = list(find_matrices(text, source))
    if not tables:
        raise UserMistake(
            f"{source}:1:1: found no table of `{command}`: expected a header with GPU0 and the other "
            "devices, and a row for each"
        )
    return next((table for table in tables if table.holds(cells)), tables[0])


def find_matrices(text: str, source: str) -> Iterator[MatrixText]:
    """Every header with at least one row under it."""
    plain = plain_lines(text)
    lines: list[tuple[Word, ...]] = []
    headers, characters = [], 0
    for number, line in enumerate(plain, start=1):
        characters += len(line) + 1  # empty lines are read, too
        if characters > _MOST_CHARACTERS:
            raise UserMistake(f"{source}:{number}:1: more than {_MOST_CHARACTERS:,} characters")
        lines.append(_words(line, number))
        if _is_header(lines[-1]):
            _refuse_many(_header_devices(lines[-1]), source)  # before its rows are taken apart
            headers.append(number - 1)
    for i, end in zip(headers, [*headers[1:], len(lines)], strict=False):
        devices = _header_devices(lines[i])
        rows = tuple(_rows(lines[i + 1 : end], {device.text for device in devices}))
        if rows:
            yield MatrixText(source, Word(plain[i], i + 1, 1), devices, rows)


def _refuse_many(devices: tuple[Word, ...], source: str) -> None:
    gpus = sum(_GPU.fullmatch(device.text) is not None for device in devices)
    for what, count, most in (
        ("devices", len(devices), _MOST_DEVICES),
        ("GPUs", gpus, _MOST_GPUS),
    ):
        if count > most:
            raise mistake(
                source, devices[0],
                f"one machine has at most {most} {what}, this table has {count}",
            )  # fmt: skip


def _rows(lines: list[tuple[Word, ...]], names: set[str]) -> Iterator[tuple[Word, ...]]:
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
    return not after or after[0].text in _AFTER_DEVICES


def _header_devices(words: tuple[Word, ...]) -> tuple[Word, ...]:
    return tuple(takewhile(lambda w: _is_device(w.text) and not LINK_CLASSES.allow(w.text), words))


def _is_device(word: str) -> bool:
    return len(word) <= _LONGEST_NAME and _DEVICE.fullmatch(word) is not None


def _is_cell(word: str) -> bool:
    return LINK_CLASSES.allow(word) or PEER_STATUSES.allow(word)


def _words(line: str, number: int) -> tuple[Word, ...]:
    return tuple(Word(m[0], number, m.start() + 1) for m in re.finditer(r"\S+", line))


def _after(word: Word) -> Word:
    return Word("", word.line, word.column + len(word.text))


def _not_a_cell(word: str, cells: Cells) -> str:
    sentence = f"{quoted(word)} is not a {cells.what}"
    for cut in range(1, min(len(word), _LONGEST_NAME)):
        if cells.allow(word[:cut]) and cells.allow(word[cut:]):
            return f"{sentence}; {word[:cut]!r} and {word[cut:]!r} ran together"
    one_letter_off = (known for known in cells.examples if _one_letter_off(word, known))
    closest = next(one_letter_off, None) or closest_name(word, cells.examples)
    if closest:
        return f"{sentence}; did you mean {closest!r}?"
    return f"{sentence}; expected one of: {', '.join(cells.examples)}"


def _one_letter_off(word: str, known: str) -> bool:
    same_length = len(word) == len(known) > 2
    return same_length and sum(a != b for a, b in zip(word, known, strict=True)) == 1
