"""SVG elements as text: numbers short and always the same, everything else escaped."""

import math
import unicodedata
from xml.sax.saxutils import escape, quoteattr

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
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
        + quoteattr(legal(value) if isinstance(value, str) else number(value))
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def words(tag: str, content: str, /, **attributes: str | float | None) -> str:
    """An element around plain text."""
    return element(tag, escape(legal(content)), **attributes)


def text(
    content: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    fill: str = "#1f2937",
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
    data: list[str | float],
    *,
    stroke: str,
    stroke_width: float,
    stroke_dasharray: str | None = None,
) -> str:
    """A line that is not filled."""
    written = " ".join(part if isinstance(part, str) else number(part) for part in data)
    return element("path", d=written, fill="none", stroke=stroke, stroke_width=stroke_width,
                   stroke_dasharray=stroke_dasharray)  # fmt: skip


def legal(content: str) -> str:
    """Without the control characters that XML can't carry."""
    return "".join(c for c in content if c in "\t\n" or unicodedata.category(c) not in ("Cc", "Cs"))


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
