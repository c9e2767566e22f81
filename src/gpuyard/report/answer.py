"""The answer to a command: sentences, tables, charts, and drawings for people, and a document for programs.

An `Answer` holds content and meaning. One place each renders it for a terminal (`terminal.py`), for programs
(`format_json`), and as a page (`html.py`).
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gpuyard.printable import make_json_printable
from gpuyard.report.figures.frame import ChartOptions
from gpuyard.table import Column, StyledText, Table, Text, Tone

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "Answer",
    "Bullets",
    "Card",
    "CardRow",
    "Chart",
    "ChartOptions",
    "Charts",
    "Column",
    "DefinitionList",
    "Drawing",
    "Drawings",
    "Part",
    "RendererOnly",
    "Section",
    "Sentence",
    "StyledText",
    "Table",
    "Text",
    "Tone",
]
ALL_BATCHES = "all"
_CHART_HEIGHT = 340  # without the legend, in CSS pixels
_BAR_HEIGHT = 36


@dataclass(frozen=True)
class Sentence:
    """A sentence or short paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Bullets:
    """A bulleted list."""

    items: Sequence[StyledText]


@dataclass(frozen=True)
class DefinitionList:
    """Names with their values."""

    facts: Sequence[tuple[str, StyledText]]
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart for a page, with ECharts options for each batch size or for all of them."""

    id: str
    caption: str
    options: Mapping[str, ChartOptions]
    shown: str = ALL_BATCHES
    """The key of the options that are drawn first."""
    wide: bool = False

    @property
    def heights(self) -> dict[str, int]:
        """The height in pixels for each key of `options`."""
        return {key: _get_height(options) for key, options in self.options.items()}

    @property
    def tall(self) -> bool:
        """True if the chart is as tall as two others, one above the other."""
        return self.heights[self.shown] > 1.5 * _CHART_HEIGHT


@dataclass(frozen=True)
class Charts:
    """Charts side by side, with a menu of batch sizes if there are several."""

    charts: Sequence[Chart]
    title: str = ""
    anchor: str = ""
    batches: Sequence[int] = ()
    shown_batch: int | None = None


@dataclass(frozen=True)
class Drawing:
    """A drawing: SVG for a page; lines of text of a given width, or a rich renderable, for a terminal."""

    svg: str = ""
    lines: Callable[[int], Sequence[StyledText]] | None = None
    caption: str = ""
    renderable: "Callable[[], RenderableType] | None" = None


@dataclass(frozen=True)
class Drawings:
    """Small drawings in rows, each with its caption."""

    drawings: Sequence[Drawing]


@dataclass(frozen=True)
class Card:
    """A verdict: its subject, the verdict in a few words, and the reasons."""

    title: str
    parts: "Sequence[Part]"
    headline: str = ""
    sign: str = ""  # for readers who cannot see the color
    badge: str = ""  # a few words in a box
    facts: str = ""  # next to the badge
    tone: Tone = "plain"
    anchor: str = ""


@dataclass(frozen=True)
class CardRow:
    """Cards side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Section:
    """Parts under a common title."""

    title: str
    parts: "Sequence[Part]"
    anchor: str = ""
    folded: bool = False
    sheet: bool = False  # printed on its own page, to hand out


@dataclass(frozen=True)
class RendererOnly:
    """Parts that only one renderer shows: for example charts on a page, and a table in a terminal."""

    reader: Literal["terminal", "page"]
    parts: "Sequence[Part]"


Part: TypeAlias = (
    Sentence
    | Bullets
    | DefinitionList
    | Table
    | Chart
    | Charts
    | Drawing
    | Drawings
    | Card
    | CardRow
    | Section
    | RendererOnly
)


@dataclass(frozen=True)
class Answer:
    """The complete result of a command."""

    parts: Sequence[Part]
    document: Any = field(default_factory=dict)
    """The JSON output. Its keys are an interface: keys may be added, but not renamed or removed."""
    title: str = ""  # title of the page
    verb: str = ""  # the command, such as "cost"
    meta: str = ""  # date, host, and prices
    rows: str | Sequence[Mapping[str, Any]] = ""
    """The rows of CSV, or their key in the document; empty: the document is a list of rows, or one row."""
    columns: Sequence[str] = ()
    """The first columns of CSV, also if there are no rows."""

    def list_rows(self) -> Any:
        """Return the rows of CSV, or the document as one row."""
        if isinstance(self.rows, str):
            return self.document[self.rows] if self.rows else self.document
        return self.rows

    def charts(self) -> list[Chart]:
        """Return all charts in the order of the page."""
        return list(_iter_charts(self.parts))


def _iter_charts(parts: Sequence[Part]) -> Iterator[Chart]:
    for part in parts:
        match part:
            case Chart():
                yield part
            case Charts():
                yield from part.charts
            case CardRow():
                yield from _iter_charts(part.cards)
            case Card() | Section():
                yield from _iter_charts(part.parts)
            case RendererOnly(reader="page"):
                yield from _iter_charts(part.parts)


def _get_height(options: ChartOptions) -> int:
    if options["yAxis"]["type"] != "category":
        return _CHART_HEIGHT
    return 120 + _BAR_HEIGHT * max(3, len(options["yAxis"]["data"]))


def format_json(document: Any) -> str:
    """Format a document as JSON that ends with a line feed."""
    text = json.dumps(replace_nonfinite(document), indent=2, ensure_ascii=False, allow_nan=False)
    return make_json_printable(text) + "\n"


def select_attrs(value: object, *names: str) -> dict[str, Any]:
    """Return the named attributes as a dictionary."""
    return {name: getattr(value, name) for name in names}


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity by None, because JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(item) for item in value]
    return value
