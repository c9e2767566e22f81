"""What a command answers: sentences, tables, charts and drawings for people, one document for programs.

An `Answer` says what there is and what it means. How it looks is decided in one place each, for a terminal
(`terminal.py`), for programs (`json_text`) and on a page (`html.py`).
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gpuyard.printable import printable_json
from gpuyard.report.figures.frame import Option
from gpuyard.table import Column, Table, Text, Tone, Words

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "Answer",
    "Bullets",
    "Card",
    "CardRow",
    "Chart",
    "Charts",
    "Column",
    "DefinitionList",
    "Drawing",
    "Drawings",
    "Only",
    "Option",
    "Part",
    "Section",
    "Sentence",
    "Table",
    "Text",
    "Tone",
    "Words",
]
ALL_BATCHES = "all"
_CHART_HEIGHT = 340  # of a chart without its legend, in CSS pixels
_BAR_HEIGHT = 36


@dataclass(frozen=True)
class Sentence:
    """One thing that is said."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Bullets:
    """Things that are said one below the other."""

    items: Sequence[Words]


@dataclass(frozen=True)
class DefinitionList:
    """Names and what stands for them."""

    facts: Sequence[tuple[str, Words]]
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart for a page: an option for each batch size, or one for all."""

    id: str
    caption: str
    options: Mapping[str, Option]
    shown: str = ALL_BATCHES
    """The key of the option that is drawn first."""
    wide: bool = False

    @property
    def heights(self) -> dict[str, int]:
        """Pixels for each option; bars on a y axis need room for each."""
        return {key: _height(option) for key, option in self.options.items()}

    @property
    def tall(self) -> bool:
        """Takes the height of two charts above each other."""
        return self.heights[self.shown] > 1.5 * _CHART_HEIGHT


@dataclass(frozen=True)
class Charts:
    """Charts beside each other, with a choice of the batch size where they have several."""

    charts: Sequence[Chart]
    title: str = ""
    anchor: str = ""
    batches: Sequence[int] = ()
    shown_batch: int | None = None


@dataclass(frozen=True)
class Drawing:
    """A drawing: SVG on a page; for a terminal lines of text of some width, or, with colours of its own,
    what rich prints."""

    svg: str = ""
    lines: Callable[[int], Sequence[Words]] | None = None
    caption: str = ""
    drawn: "Callable[[], RenderableType] | None" = None


@dataclass(frozen=True)
class Drawings:
    """Small drawings in rows, each with its caption."""

    drawings: Sequence[Drawing]


@dataclass(frozen=True)
class Card:
    """A verdict: what it is about, the verdict in a few words, and what it rests on."""

    title: str
    parts: "Sequence[Part]"
    headline: str = ""
    sign: str = ""  # so that no reader depends on the colour
    badge: str = ""  # a few words in a box
    facts: str = ""  # beside the badge
    tone: Tone = "plain"
    anchor: str = ""


@dataclass(frozen=True)
class CardRow:
    """Verdicts beside each other."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Section:
    """Parts under one title."""

    title: str
    parts: "Sequence[Part]"
    anchor: str = ""
    folded: bool = False
    sheet: bool = False  # a page of its own on paper, to be handed on


@dataclass(frozen=True)
class Only:
    """Parts for one kind of reader: a page shows charts where a terminal shows a table."""

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
    | Only
)


@dataclass(frozen=True)
class Answer:
    """Everything that a command has to say."""

    parts: Sequence[Part]
    document: Any = field(default_factory=dict)
    """For programs: its keys are an interface, they only get more."""
    title: str = ""  # of a page
    verb: str = ""  # the command that answers, as in "cost"
    meta: str = ""  # when, where, by which prices

    def charts(self) -> list[Chart]:
        """All charts in the order of the page."""
        return list(_charts(self.parts))


def _charts(parts: Sequence[Part]) -> Iterator[Chart]:
    for part in parts:
        match part:
            case Chart():
                yield part
            case Charts():
                yield from part.charts
            case CardRow():
                yield from _charts(part.cards)
            case Card() | Section():
                yield from _charts(part.parts)
            case Only(reader="page"):
                yield from _charts(part.parts)


def _height(option: Option) -> int:
    if option["yAxis"]["type"] != "category":
        return _CHART_HEIGHT
    return 120 + _BAR_HEIGHT * max(3, len(option["yAxis"]["data"]))


def json_text(document: Any) -> str:
    """The document as text that ends with a line feed."""
    text = json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    return printable_json(text) + "\n"


def picked(value: object, *names: str) -> dict[str, Any]:
    """Some of its attributes, under their own names."""
    return {name: getattr(value, name) for name in names}


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
