"""An answer on a terminal: the one place that fits tables to the width, colours what carries meaning, and
lets nothing through that a terminal would obey."""

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from gpuyard.printable import printable
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Card,
    CardRow,
    Column,
    DefinitionList,
    Drawing,
    Drawings,
    Only,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
    Words,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPE_WIDTH = 1000  # in a file or a pipe no line is broken
_MOST_PROSE = 100  # longer lines are hard to read
_READABLE_PROSE = (
    20  # narrower than this a column of words is hard to read: others are left out first
)
_LONGEST_NAME = 40
_LONGEST_WORD = 26  # longer ones may be broken
_LEAST_PROSE = 16  # where nothing can be left out, it may become as narrow as this
_LEAST_WORDS = 10  # and as narrow as this before a column is left out that should not be
_FIGURE = r"[±+−×-]? ?[$€]?\d[\d,.]*(?:[ /]\S{1,12})?"
_DATE = r"\d{4}-\d\d(?:-\d\d)?(?: \d\d:\d\d)?"
_NUMBER = re.compile(rf"^(?:–|{_DATE}|{_FIGURE}(?: (?:–|to|of|×) {_FIGURE})?(?: \({_FIGURE}\))?)$")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=\S)")
_WORDS = re.compile(r" +|[^ ]+")
_PIECES = re.compile(r"[^-]+-*|-+")  # a long word may be broken after each
_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "quiet": "dim",
    "accent": "cyan",
    "good": "green",
    "caution": "yellow",
    "bad": "bold red",
}


def console(*, stderr: bool = False) -> "Console":
    """The one console: as wide as the terminal; it takes every text as it is and passes no escapes on."""
    stream = sys.stderr if stderr else sys.stdout
    return _console(stream, None if stream.isatty() else _PIPE_WIDTH)


def _console(
    stream: IO[str], width: int | None, *, force_terminal: bool | None = None
) -> "Console":
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            # whatever is printed, by whichever of rich's ways, passes here; its own codes are apart
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(printable(segment.text), segment.style)

    return Plain(
        file=stream,
        width=width,
        force_terminal=force_terminal,
        markup=False,
        highlight=False,
        emoji=False,
    )


def print_answer(answer: Answer, *, wide: bool = False, out: "Console | None" = None) -> None:
    """Everything that a terminal can show of it; `wide` leaves no column out."""
    _print(answer.parts, out or console(), wide=wide)


def say(text: str, tone: Tone = "plain", *, stderr: bool = True) -> None:
    """One line beside an answer: what was written where, what is being done."""
    out = console(stderr=stderr)
    out.print(_prose(text, out, tone), soft_wrap=True)


def _print(parts: Sequence[Part], out: "Console", *, wide: bool) -> None:
    for part in parts:
        match part:
            case Sentence():
                out.print(_prose(part.text, out, part.tone))
            case Bullets():
                for item in part.items:
                    out.print(_item(item, out))
            case DefinitionList():
                out.print(_facts(part))
            case Table():
                _print_table(part, out, wide=wide)
            case Drawing():
                _print_drawing(part, out)
            case Card():
                _print_card(part, out, wide=wide)
            case _:
                _print_several(part, out, wide=wide)


def _print_several(part: Part, out: "Console", *, wide: bool) -> None:
    match part:
        case Drawings():
            _print(part.drawings, out, wide=wide)
        case CardRow():
            _print(part.cards, out, wide=wide)
        case Section():
            out.print()
            out.print(_rich(part.title, "strong"))
            _print(part.parts, out, wide=wide)
        case Only(reader="terminal"):
            _print(part.parts, out, wide=wide)


def _rich(words: Words, tone: Tone = "plain") -> "RenderableType":
    from rich.text import Text as RichText

    if isinstance(words, Text):
        return RichText(printable(words.text), _STYLES[words.tone])
    return RichText(printable(words), _STYLES[tone])


def _prose(
    text: str, out: "Console", tone: Tone = "plain", indent: int = 0, first: str = ""
) -> "RenderableType":
    """No line break between a number and its unit, and none at all in a file or a pipe."""
    from rich.text import Text as RichText

    shown = printable(text)
    if out.width < _PIPE_WIDTH:
        glued = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", shown)
        wrapped = textwrap.fill(
            glued,
            min(out.width, _MOST_PROSE) - indent,
            break_long_words=False,  # names and paths are copied from here
            break_on_hyphens=False,
        )
        shown = wrapped.replace("\N{NO-BREAK SPACE}", " ")
    indented = textwrap.indent(shown, " " * indent)
    return RichText(first + indented[len(first) :], _STYLES[tone])


def _item(item: Words, out: "Console") -> "RenderableType":
    tone = item.tone if isinstance(item, Text) else "plain"
    return _prose(_text(item), out, tone, indent=2, first="- ")


def _facts(facts: DefinitionList) -> "RenderableType":
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 2, 0, 0))
    if facts.title:
        grid.title, grid.title_justify = _rich(facts.title, "strong"), "left"  # type: ignore[assignment]
    for name, value in facts.facts:
        grid.add_row(_rich(name, "quiet"), _rich(value))
    return grid


def _print_card(card: Card, out: "Console", *, wide: bool) -> None:
    from rich.text import Text as RichText

    head = RichText(printable(card.title), "bold")
    if card.headline or card.badge:
        head.append(": ").append(printable(card.headline or card.badge), _STYLES[card.tone])
    if card.facts:
        head.append(f" ({printable(card.facts)})", "dim")
    out.print(head)
    for part in card.parts:
        if isinstance(part, Sentence):
            out.print(_prose(part.text, out, part.tone, indent=2))
        else:
            _print([part], out, wide=wide)


def _print_drawing(drawing: Drawing, out: "Console") -> None:
    if drawing.drawn is not None:
        out.print(drawing.drawn(), "")
    if drawing.lines is None:
        return
    out.print()
    for line in drawing.lines(min(out.width, _MOST_PROSE)):
        out.print(_rich(line), no_wrap=True, crop=False, overflow="ignore")
    if drawing.caption:
        out.print(_prose(drawing.caption, out, "quiet"))
    out.print()


def _print_table(table: Table, out: "Console", *, wide: bool) -> None:
    from rich.table import Table as RichTable

    columns = [c if isinstance(c, Column) else Column(c) for c in table.columns]
    sizes = [_Size.of(column.name, table.rows, i) for i, column in enumerate(columns)]
    shown = range(len(columns)) if wide else _fitting(columns, sizes, out.width)
    room = _PIPE_WIDTH if wide else out.width
    widths = _widths([sizes[i] for i in shown], room)
    drawn = RichTable(header_style="bold")
    for index, width in zip(shown, widths, strict=True):
        drawn.add_column(
            _rich(columns[index].name),
            justify="right" if sizes[index].numeric else "left",
            overflow="fold",
            width=width,
        )
    for row in table.rows:
        drawn.add_row(*(_cell(row[i], width) for i, width in zip(shown, widths, strict=True)))
    if table.title:
        out.print(_prose(table.title, out, "strong"))
    (_widened(out) if wide else out).print(drawn)
    if left := [column.name for i, column in enumerate(columns) if i not in shown]:
        out.print(_prose(f"Not shown at this width: {', '.join(left)} (--wide).", out, "quiet"))
    if table.note:
        out.print(_prose(table.note, out, "quiet"))


def _widened(out: "Console") -> "Console":
    """The same, and no line is broken: the terminal or its user scrolls."""
    return _console(out.file, _PIPE_WIDTH, force_terminal=out.is_terminal)


@dataclass(frozen=True)
class _Size:
    """How wide a column would like to be, and how narrow it can be: numbers are never broken."""

    natural: int
    folded: int  # with the words of its head below each other
    readable: int
    least: int
    squeezed: int
    numeric: bool
    warns: bool

    @classmethod
    def of(cls, name: str, rows: Sequence[Sequence[Words]], index: int) -> "_Size":
        cells = [_text(row[index]) for row in rows]
        tones = {cell.tone for row in rows if isinstance(cell := row[index], Text)}
        numeric = any(cells) and all(not cell or _NUMBER.match(cell) for cell in cells)
        longest = max((len(line) for cell in cells for line in cell.split("\n")), default=0)
        readable = least = longest
        names = index == 0 and not any(" " in cell for cell in cells)  # are typed again
        whole = numeric or (names and longest <= _LONGEST_NAME)
        if not whole:
            word = max((len(word) for cell in cells for word in cell.split()), default=0)
            piece = max((len(p) for cell in cells for p in _pieces(cell, 0)), default=0)
            readable = min(longest, max(_READABLE_PROSE, min(word, _LONGEST_WORD)))
            least = min(longest, max(_LEAST_PROSE, min(piece, _READABLE_PROSE)))
        head = max((len(word) for word in name.split()), default=0)
        return cls(
            natural=max(len(name), longest),
            folded=max(head, longest),
            readable=max(head, readable),
            least=max(head, least),
            squeezed=max(head, least if whole else min(least, _LEAST_WORDS)),
            numeric=numeric,
            warns=bool(tones & {"bad", "caution"}),
        )


def _text(words: Words) -> str:
    return printable(words.text if isinstance(words, Text) else words)


def _pieces(text: str, width: int) -> list[str]:
    """What of a line stays together: a number with its unit, and words; long ones up to a hyphen."""
    glued = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text.replace("\n", " "))
    words = _WORDS.findall(glued)
    return [p for word in words for p in ([word] if len(word) <= width else _PIECES.findall(word))]


def _cell(words: Words, width: int) -> "RenderableType":
    """As lines of this width."""
    text, lines = _text(words), []
    for whole in text.split("\n"):
        line, *pieces = _pieces(whole, width) or [""]
        for piece in pieces:
            if len(line) + len(piece.rstrip(" ")) > width:
                lines.append(line.rstrip(" "))
                line = piece.lstrip(" ")
            else:
                line += piece
        lines.append(line.rstrip(" "))
    folded = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    return _rich(Text(folded, words.tone) if isinstance(words, Text) else folded)


def _fitting(columns: Sequence[Column], sizes: Sequence[_Size], width: int) -> Sequence[int]:
    """The columns that fit, in their order: those that readers miss least go first, and where none of
    these is left, the last ones that warn of nothing, as numbers are never broken."""
    shown = list(range(len(columns)))
    by_worth = sorted(
        (i for i in shown if columns[i].drop > 0), key=lambda i: (columns[i].drop, i), reverse=True
    )
    for index in by_worth:
        if sum(sizes[i].readable + 3 for i in shown) + 1 <= width:
            break
        shown.remove(index)
    while len(shown) > 1 and sum(sizes[i].squeezed + 3 for i in shown) + 1 > width:
        last = (i for i in reversed(shown[1:]) if not sizes[i].warns and columns[i].drop >= 0)
        shown.remove(next(last, shown[-1]))
    return shown


def _widths(sizes: Sequence[_Size], room: int) -> list[int]:
    """What each column gets: first heads fold, then the widest gives, and none gives more than it can."""
    widths = [size.natural for size in sizes]
    excess = sum(widths) + 3 * len(widths) + 1 - room
    for floors in (
        [size.folded for size in sizes],
        [size.least for size in sizes],
        [size.squeezed for size in sizes],
    ):
        while excess > 0 and (giving := [i for i, w in enumerate(widths) if w > floors[i]]):
            widths[max(giving, key=lambda i: widths[i])] -= 1
            excess -= 1
    return widths
