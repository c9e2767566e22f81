"""Prints answers to a terminal: fits tables to its width, colors text by tone, and removes escape sequences."""

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from gpuyard.printable import make_printable
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Card,
    CardRow,
    Column,
    DefinitionList,
    Drawing,
    Drawings,
    Part,
    RendererOnly,
    Section,
    Sentence,
    StyledText,
    Table,
    Text,
    Tone,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPE_WIDTH = 1000  # wide enough that lines in a file or a pipe are never broken
_MAX_PROSE = 100  # longer lines are hard to read
_MAX_NAME = 40  # names in a first column are kept whole up to this length
_MAX_WORD = 26  # longer words may be broken
# Widths of a prose column. To keep it readable, optional columns are dropped first. It then shrinks to the minimum,
# and to the squeezed width before a column that should stay is dropped.
_READABLE_PROSE, _MIN_PROSE, _SQUEEZED_PROSE = 20, 16, 10
_FIGURE = r"[±+−×-]? ?[$€]?\d[\d,.]*(?:%|[ /]\S{1,12})?"
_DATE = r"\d{4}-\d\d(?:-\d\d)?(?: \d\d:\d\d)?"
_NUMBER = re.compile(rf"^(?:–|{_DATE}|{_FIGURE}(?: (?:–|to|of|×) {_FIGURE})?(?: \({_FIGURE}\))?)$")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=\S)")
_WORDS = re.compile(r" +|[^ ]+")
_PIECES = re.compile(r"[^-]+-*|-+")  # a long word may be broken after hyphens
_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "quiet": "dim",
    "accent": "cyan",
    "good": "green",
    "caution": "yellow",
    "bad": "bold red",
}


def create_console(*, stderr: bool = False) -> "Console":
    """Create a console as wide as the terminal that prints text literally and drops escape sequences."""
    stream = sys.stderr if stderr else sys.stdout
    return _create_console(stream, None if stream.isatty() else _PIPE_WIDTH)


def text_console(stream: IO[str], columns: int) -> "Console":
    """Create a console that writes plain text of this width to a stream."""
    return _create_console(stream, columns, force_terminal=False)


def _create_console(
    stream: IO[str], width: int | None, *, force_terminal: bool | None = None
) -> "Console":
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            # all output of rich passes through here; its own control codes are separate segments
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(make_printable(segment.text), segment.style)

    return Plain(
        file=stream,
        width=width,
        force_terminal=force_terminal,
        markup=False,
        highlight=False,
        emoji=False,
        force_jupyter=False,  # in a notebook, rich would display each line in addition to the HTML
    )


def print_answer(answer: Answer, *, wide: bool = False, out: "Console | None" = None) -> None:
    """Print everything that a terminal can show; `wide` keeps all columns."""
    _print(answer.parts, out or create_console(), wide=wide)


def print_line(text: str, tone: Tone = "plain", *, stderr: bool = True) -> None:
    """Print a line that is not part of an answer, such as a progress message."""
    out = create_console(stderr=stderr)
    out.print(_wrap(text, out, tone), soft_wrap=True)


def _print(parts: Sequence[Part], out: "Console", *, wide: bool) -> None:
    for part in parts:
        match part:
            case Sentence():
                out.print(_wrap(part.text, out, part.tone))
            case Bullets():
                for item in part.items:
                    tone = item.tone if isinstance(item, Text) else "plain"
                    out.print(_wrap(_get_text(item), out, tone, indent=2, first="- "))
            case DefinitionList():
                out.print(_build_grid(part))
            case Table():
                _print_table(part, out, wide=wide)
            case Drawing():
                _print_drawing(part, out)
            case Card():
                _print_card(part, out, wide=wide)
            case _:
                _print_group(part, out, wide=wide)


def _print_group(part: Part, out: "Console", *, wide: bool) -> None:
    match part:
        case Drawings():
            _print(part.drawings, out, wide=wide)
        case CardRow():
            _print(part.cards, out, wide=wide)
        case Section():
            out.print()
            out.print(_to_rich(part.title, "strong"))
            _print(part.parts, out, wide=wide)
        case RendererOnly(reader="terminal"):
            _print(part.parts, out, wide=wide)


def _to_rich(styled: StyledText, tone: Tone = "plain") -> "RenderableType":
    from rich.text import Text as RichText

    if isinstance(styled, Text):
        return RichText(make_printable(styled.text), _STYLES[styled.tone])
    return RichText(make_printable(styled), _STYLES[tone])


def _wrap(
    text: str, out: "Console", tone: Tone = "plain", indent: int = 0, first: str = ""
) -> "RenderableType":
    """Wrap text, but never between a number and its unit, and not at all in a file or a pipe."""
    from rich.text import Text as RichText

    text = make_printable(text)
    if out.width < _PIPE_WIDTH:
        glued = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
        wrapped = textwrap.fill(
            glued,
            min(out.width, _MAX_PROSE) - indent,
            break_long_words=False,  # so that names and paths can be copied
            break_on_hyphens=False,
        )
        text = wrapped.replace("\N{NO-BREAK SPACE}", " ")
    indented = textwrap.indent(text, " " * indent)
    return RichText(first + indented[len(first) :], _STYLES[tone])


def _build_grid(definitions: DefinitionList) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 2, 0, 0))
    for name, value in definitions.facts:
        grid.add_row(_to_rich(name, "quiet"), _to_rich(value))
    # above it, not in it: rich folds the title of a grid to the grid's own width
    return Group(_to_rich(definitions.title, "strong"), grid) if definitions.title else grid


def _print_card(card: Card, out: "Console", *, wide: bool) -> None:
    from rich.text import Text as RichText

    head = RichText(make_printable(card.title), "bold")
    if card.headline or card.badge:
        head.append(": ").append(make_printable(card.headline or card.badge), _STYLES[card.tone])
    if card.facts:
        head.append(f" ({make_printable(card.facts)})", "dim")
    out.print(head)
    for part in card.parts:
        if isinstance(part, Sentence):
            out.print(_wrap(part.text, out, part.tone, indent=2))
        else:
            _print([part], out, wide=wide)


def _print_drawing(drawing: Drawing, out: "Console") -> None:
    if drawing.renderable is not None:
        out.print(drawing.renderable(), "")
    if drawing.lines is None:
        return
    out.print()
    for line in drawing.lines(min(out.width, _MAX_PROSE)):
        out.print(_to_rich(line), no_wrap=True, crop=False, overflow="ignore")
    if drawing.caption:
        out.print(_wrap(drawing.caption, out, "quiet"))
    out.print()


def _print_table(table: Table, out: "Console", *, wide: bool) -> None:
    from rich.table import Table as RichTable

    columns = [c if isinstance(c, Column) else Column(c) for c in table.columns]
    sizes = [_ColumnSize.from_cells(c.name, table.rows, i) for i, c in enumerate(columns)]
    kept = range(len(columns)) if wide else _choose_columns(columns, sizes, out.width)
    widths = _choose_widths([sizes[i] for i in kept], _PIPE_WIDTH if wide else out.width)
    rendered = RichTable(header_style="bold")
    for index, width in zip(kept, widths, strict=True):
        rendered.add_column(
            _to_rich(columns[index].name),
            justify="right" if sizes[index].numeric else "left",
            overflow="fold",
            width=width,
        )
    for row in table.rows:
        rendered.add_row(
            *(_fold_cell(row[i], width) for i, width in zip(kept, widths, strict=True))
        )
    if table.title:
        out.print(_wrap(table.title, out, "strong"))
    # with --wide no line is broken, and the terminal scrolls
    target = _create_console(out.file, _PIPE_WIDTH, force_terminal=out.is_terminal) if wide else out
    target.print(rendered)
    if dropped := [column.name for i, column in enumerate(columns) if i not in kept]:
        out.print(_wrap(f"Not shown at this width: {', '.join(dropped)} (--wide).", out, "quiet"))
    if table.note:
        out.print(_wrap(table.note, out, "quiet"))


@dataclass(frozen=True)
class _ColumnSize:
    """The natural width of a column, and how narrow it can become. Numbers are never broken."""

    natural: int
    folded: int  # with one word of the header per line
    readable: int
    minimum: int
    squeezed: int
    numeric: bool
    warns: bool

    @classmethod
    def from_cells(
        cls, name: str, rows: Sequence[Sequence[StyledText]], index: int
    ) -> "_ColumnSize":
        cells = [_get_text(row[index]) for row in rows]
        tones = {cell.tone for row in rows if isinstance(cell := row[index], Text)}
        numeric = any(cells) and all(not cell or _NUMBER.match(cell) for cell in cells)
        longest = max((len(line) for cell in cells for line in cell.split("\n")), default=0)
        readable = minimum = longest
        # names in the first column stay whole, because people type them again
        names = index == 0 and not any(" " in cell for cell in cells)
        whole = numeric or (names and longest <= _MAX_NAME)
        if not whole:
            word = max((len(word) for cell in cells for word in cell.split()), default=0)
            piece = max((len(p) for cell in cells for p in _split_pieces(cell, 0)), default=0)
            readable = min(longest, max(_READABLE_PROSE, min(word, _MAX_WORD)))
            minimum = min(longest, max(_MIN_PROSE, min(piece, _READABLE_PROSE)))
        header = max((len(word) for word in name.split()), default=0)
        return cls(
            natural=max(len(name), longest),
            folded=max(header, longest),
            readable=max(header, readable),
            minimum=max(header, minimum),
            squeezed=max(header, minimum if whole else min(minimum, _SQUEEZED_PROSE)),
            numeric=numeric,
            warns=bool(tones & {"bad", "caution"}),
        )


def _get_text(styled: StyledText) -> str:
    return make_printable(styled.text if isinstance(styled, Text) else styled)


def _split_pieces(text: str, width: int) -> list[str]:
    """Split a line into pieces that stay together: words, and numbers with their units.

    Words longer than `width` are split after hyphens.
    """
    glued = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text.replace("\n", " "))
    words = _WORDS.findall(glued)
    return [p for word in words for p in ([word] if len(word) <= width else _PIECES.findall(word))]


def _fold_cell(styled: StyledText, width: int) -> "RenderableType":
    """Break the text of a cell into lines of at most this width."""
    lines = []
    for paragraph in _get_text(styled).split("\n"):
        line, *pieces = _split_pieces(paragraph, width) or [""]
        for piece in pieces:
            if len(line) + len(piece.rstrip(" ")) > width:
                lines.append(line.rstrip(" "))
                line = piece.lstrip(" ")
            else:
                line += piece
        lines.append(line.rstrip(" "))
    folded = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    return _to_rich(Text(folded, styled.tone) if isinstance(styled, Text) else folded)


def _choose_columns(
    columns: Sequence[Column], sizes: Sequence[_ColumnSize], width: int
) -> Sequence[int]:
    """Return the indexes of the columns that fit.

    Columns with the largest `drop` are dropped first. If the rest is still too wide, the last columns are dropped,
    except those that contain warnings.
    """
    kept = list(range(len(columns)))
    droppable = sorted(
        (i for i in kept if columns[i].drop > 0), key=lambda i: (columns[i].drop, i), reverse=True
    )
    for index in droppable:
        if sum(sizes[i].readable + 3 for i in kept) + 1 <= width:
            break
        kept.remove(index)
    while len(kept) > 1 and sum(sizes[i].squeezed + 3 for i in kept) + 1 > width:
        last = (i for i in reversed(kept[1:]) if not sizes[i].warns and columns[i].drop >= 0)
        kept.remove(next(last, kept[-1]))
    return kept


def _choose_widths(sizes: Sequence[_ColumnSize], available: int) -> list[int]:
    """Shrink columns until they fit: first headers fold, then the widest column gives way step by step."""
    widths = [size.natural for size in sizes]
    excess = sum(widths) + 3 * len(widths) + 1 - available
    for minimums in (
        [size.folded for size in sizes],
        [size.minimum for size in sizes],
        [size.squeezed for size in sizes],
    ):
        while excess > 0 and (shrinkable := [i for i, w in enumerate(widths) if w > minimums[i]]):
            widths[max(shrinkable, key=lambda i: widths[i])] -= 1
            excess -= 1
    return widths
