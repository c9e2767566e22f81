"""Builds SVG text. All content is escaped, and equal values always give equal bytes.

A picture contains only text and shapes, without scripts or ids, so it works as a file or inside a page.
"""

import math
import unicodedata
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from gpuyard.draw.palette import BACKGROUND, CHART_STYLE, FRAME, INK
from gpuyard.printable import make_printable

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
CHART_EDGE = 14  # left margin of a chart
_NARROW = frozenset("ijlIt.,:;|'!()[]{}/ f-·")
_BROAD = frozenset("mwMW@%")


def _format_number(value: float) -> str:
    """Format a coordinate: 12.50 → 12.5, 3.0 → 3."""
    if not math.isfinite(value):
        raise ValueError(f"a coordinate must be finite, not {value}")
    # adding zero turns -0.0 into 0.0
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def element(tag: str, inside: str = "", /, **attributes: str | float | None) -> str:
    """Return an SVG element. `stroke_width=2` becomes stroke-width="2"; attributes that are None are omitted."""
    attribute_text = "".join(
        f" {name.rstrip('_').replace('_', '-')}="
        + quoteattr(make_printable(value) if isinstance(value, str) else _format_number(value))
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{attribute_text}>{inside}</{tag}>" if inside else f"<{tag}{attribute_text}/>"


def text_element(tag: str, content: str, /, **attributes: str | float | None) -> str:
    """Return an element that contains plain text."""
    return element(tag, escape(make_printable(content)), **attributes)


def text(
    content: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    fill: str = INK,
    anchor: str = "start",
    bold: bool = False,
    halo: str | None = None,
) -> str:
    """Return a line of text; (x, y) is on its baseline. A halo keeps it readable on top of wires."""
    return text_element(
        "text",
        content,
        x=x,
        y=y,
        font_size=size,
        fill=fill,
        text_anchor=None if anchor == "start" else anchor,
        font_weight="600" if bold else None,
        paint_order="stroke" if halo else None,
        stroke=halo,
        stroke_width=4 if halo else None,
        stroke_linejoin="round" if halo else None,
    )


def path(
    data: Iterable[str | float], *, stroke: str, stroke_width: float, **more: str | float
) -> str:
    """Return an unfilled path."""
    commands = " ".join(part if isinstance(part, str) else _format_number(part) for part in data)
    return element(
        "path", d=commands, fill="none", stroke=stroke, stroke_width=stroke_width, **more
    )


def format_points(points: Iterable[tuple[float, float]]) -> str:
    """Format the `points` attribute of a polygon or polyline."""
    return " ".join(f"{_format_number(x)},{_format_number(y)}" for x, y in points)


def translate(inside: str, x: float, y: float) -> str:
    """Return a group whose origin is at (x, y)."""
    return element("g", inside, transform=f"translate({_format_number(x)} {_format_number(y)})")


def render_drawing(
    parts: Iterable[str], width: float, height: float, *, title: str, about: str
) -> str:
    """Return a complete SVG file: a drawing on white, with a description (`about`) for screen readers."""
    background = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10,
                     fill=BACKGROUND, stroke=FRAME)  # fmt: skip
    description = (text_element("title", title), text_element("desc", about))
    return _render_file([*description, background, *parts], width, height, font_family=FONT)


def render_chart(parts: Iterable[str], width: float, height: float, *, title: str) -> str:
    """Return a complete SVG file: a chart under its title, which follows the reader's color scheme."""
    description = text_element("title", title) + element("style", CHART_STYLE)
    background = element("rect", class_="page", width=width, height=height)
    heading = text_element("text", title, class_="title", x=CHART_EDGE, y=24)
    return _render_file([description, background, heading, *parts], width, height)


def _render_file(parts: Iterable[str], width: float, height: float, **attributes: str) -> str:
    svg = element("svg", "\n" + "\n".join(parts) + "\n", xmlns="http://www.w3.org/2000/svg", width=width,
                    height=height, viewBox=f"0 0 {_format_number(width)} {_format_number(height)}", role="img",
                    **attributes)  # fmt: skip
    return svg + "\n"


def text_width(content: str, size: float) -> float:
    """Estimate the width in Helvetica, erring on the wide side."""
    return size * sum(_em_width(character) for character in content)


def wrap(content: str, width: float, size: float, lines: int) -> list[str]:
    """Break text between words into at most `lines` lines; an ellipsis ends a last line that is too long."""
    wrapped: list[str] = []
    for word in content.split():
        joined = f"{wrapped[-1]} {word}" if wrapped else word
        if wrapped and text_width(joined, size) <= width:
            wrapped[-1] = joined
        else:
            wrapped.append(word)
    if len(wrapped) > lines:
        wrapped = [*wrapped[: lines - 1], " ".join(wrapped[lines - 1 :])]
    elif len(wrapped) == 2:
        wrapped = _balance_two_lines(content.split(), size)
    return [shorten(line, width, size) for line in wrapped]


def _balance_two_lines(words: list[str], size: float) -> list[str]:
    """Split into two lines of similar width: "A100 SXM4" and "80 GB", rather than "GB" alone."""
    splits = [[" ".join(words[:i]), " ".join(words[i:])] for i in range(1, len(words))]
    return min(splits, key=lambda split: max(text_width(line, size) for line in split))


def shorten(content: str, width: float, size: float) -> str:
    """Cut text that is too wide and end it with an ellipsis."""
    if text_width(content, size) <= width:
        return content
    while content and text_width(f"{content}…", size) > width:
        content = content[:-1]
    return f"{content.rstrip()}…"


def _em_width(character: str) -> float:
    if character in _NARROW:
        return 0.32
    if character in _BROAD:
        return 0.88
    if unicodedata.east_asian_width(character) in "WF" or character == "…":
        return 1.02
    return 0.69 if character.isupper() else 0.57
