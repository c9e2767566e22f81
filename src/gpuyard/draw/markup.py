"""SVG as text: numbers short and always the same, everything else escaped.

A picture is text and shapes only, without scripts or ids, so it stands alone or inside a page, and the
same values always give the same bytes.
"""

import math
import unicodedata
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from gpuyard.draw.palette import CHART_STYLE, FRAME, GROUND, INK
from gpuyard.printable import printable

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
CHART_EDGE = 14  # left of everything in a chart
_NARROW = frozenset("ijlIt.,:;|'!()[]{}/ f-·")
_BROAD = frozenset("mwMW@%")


def number(value: float) -> str:
    """12.50 → 12.5, 3.0 → 3."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no coordinate")
    # adding zero makes -0.0 plain
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def element(tag: str, inside: str = "", /, **attributes: str | float | None) -> str:
    """`stroke_width=2` becomes stroke-width="2"; None leaves an attribute out."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}="
        + quoteattr(printable(value) if isinstance(value, str) else number(value))
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def words(tag: str, content: str, /, **attributes: str | float | None) -> str:
    """An element around plain text."""
    return element(tag, escape(printable(content)), **attributes)


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
    """A line of text on its baseline; the halo keeps it readable on top of wires."""
    return words(
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
    """A line that is not filled."""
    written = " ".join(part if isinstance(part, str) else number(part) for part in data)
    return element("path", d=written, fill="none", stroke=stroke, stroke_width=stroke_width, **more)


def corners(places: Iterable[tuple[float, float]]) -> str:
    """The points of a polygon or of a line."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in places)


def moved(inside: str, x: float, y: float) -> str:
    """A group with its corner there."""
    return element("g", inside, transform=f"translate({number(x)} {number(y)})")


def page(parts: Iterable[str], width: float, height: float, *, title: str, about: str) -> str:
    """A whole file: a drawing on a white ground of its own, and what it is for those who don't see it."""
    ground = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10,
                     fill=GROUND, stroke=FRAME)  # fmt: skip
    described = (words("title", title), words("desc", about))
    return _file([*described, ground, *parts], width, height, font_family=FONT)


def chart_page(parts: Iterable[str], width: float, height: float, *, title: str) -> str:
    """A whole file: a chart under its title, dark where the reader's screen is."""
    described = words("title", title) + element("style", CHART_STYLE)
    ground = element("rect", class_="page", width=width, height=height)
    heading = words("text", title, class_="title", x=CHART_EDGE, y=24)
    return _file([described, ground, heading, *parts], width, height)


def _file(parts: Iterable[str], width: float, height: float, **attributes: str) -> str:
    whole = element("svg", "\n" + "\n".join(parts) + "\n", xmlns="http://www.w3.org/2000/svg", width=width,
                    height=height, viewBox=f"0 0 {number(width)} {number(height)}", role="img",
                    **attributes)  # fmt: skip
    return whole + "\n"


def text_width(content: str, size: float) -> float:
    """About as wide as Helvetica sets it; a little too wide rather than too narrow."""
    return size * sum(_em(character) for character in content)


def wrap(content: str, width: float, size: float, lines: int) -> list[str]:
    """Broken between words into at most so many lines, the last one cut with an ellipsis."""
    broken: list[str] = []
    for word in content.split():
        joined = f"{broken[-1]} {word}" if broken else word
        if broken and text_width(joined, size) <= width:
            broken[-1] = joined
        else:
            broken.append(word)
    if len(broken) > lines:
        broken = [*broken[: lines - 1], " ".join(broken[lines - 1 :])]
    elif len(broken) == 2:
        broken = _halved(content.split(), size)
    return [shorten(line, width, size) for line in broken]


def _halved(parts: list[str], size: float) -> list[str]:
    """Two lines as even as they get: "A100 SXM4" and "80 GB", not "GB" alone."""
    ways = [[" ".join(parts[:i]), " ".join(parts[i:])] for i in range(1, len(parts))]
    return min(ways, key=lambda way: max(text_width(line, size) for line in way))


def shorten(content: str, width: float, size: float) -> str:
    """Cut with an ellipsis where it doesn't fit."""
    if text_width(content, size) <= width:
        return content
    while content and text_width(f"{content}…", size) > width:
        content = content[:-1]
    return f"{content.rstrip()}…"


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.32
    if character in _BROAD:
        return 0.88
    if unicodedata.east_asian_width(character) in "WF" or character == "…":
        return 1.02
    return 0.69 if character.isupper() else 0.57
