"""Draws the faces of plugs and sockets, as SVG and as text.

In SVG, a socket has dark holes on a light face; a plug has light pins on a dark face.
"""

import math
from collections.abc import Sequence

from gpuyard.catalog.facility import Plug
from gpuyard.draw.markup import (
    element,
    format_points,
    path,
    render_drawing,
    shorten,
    text,
    translate,
)
from gpuyard.draw.palette import BACKGROUND, INK, MUTED
from gpuyard.draw.plug_faces import Contact, Face, get_face

_SCALE = 2.7
_TILE_WIDTH, _TILE_HEIGHT, _COLUMNS = 308.0, 236.0, 4
_TEXT_COLUMNS, _TEXT_LINES = 13, 5
_BODY, _DARK, _EDGE, _PIN = "#f3f0e8", "#33383f", "#5b616b", "#d8dde3"


def draw_plug_svg(plug: Plug) -> str:
    """Draw one face as an SVG file."""
    size = 150.0
    face = translate(_draw_face(plug), size / 2, size / 2)
    return render_drawing([face], size, size, title=plug.name, about=f"Face of the {plug.name}.")


def draw_plugs_svg(plugs: Sequence[Plug]) -> str:
    """Draw all faces on one sheet, with their names, ratings, and mating parts."""
    rows = math.ceil(len(plugs) / _COLUMNS)
    tiles = [
        translate(
            _draw_tile(plug), 16 + i % _COLUMNS * _TILE_WIDTH, 16 + i // _COLUMNS * _TILE_HEIGHT
        )
        for i, plug in enumerate(plugs)
    ]
    width, height = 32 + _COLUMNS * _TILE_WIDTH, 32 + rows * _TILE_HEIGHT
    about = "Faces of plugs and sockets with their ratings and mating parts."
    return render_drawing(tiles, width, height, title="Plugs and sockets", about=about)


def draw_plug_lines(plug: Plug) -> list[str]:
    """Draw five lines of text: | and — are slots, T is a T-slot, o is round, and ( is a curved blade."""
    face = get_face(plug)
    side = -1 if plug.gender == "plug" else 1
    grid = [[" "] * _TEXT_COLUMNS for _ in range(_TEXT_LINES)]
    across = max(abs(contact.x) for contact in face.contacts) or 1.0
    down = max(abs(contact.y) for contact in face.contacts) or 1.0
    for contact in face.contacts:
        column = _TEXT_COLUMNS // 2 + round(contact.x * side / across * 3)
        line = _TEXT_LINES // 2 + round(contact.y / down * (1 if down < 9 else 2))
        grid[line][column] = _get_character(contact, pins=side < 0)
    left, right = ("(", ")") if face.outline in {"round", "notched"} else ("[", "]")
    return [left + "".join(line) + right for line in grid]


def _draw_tile(plug: Plug) -> str:
    width = _TILE_WIDTH - 20
    amps = [
        f"{value:g} A {region}"
        for value, region in ((plug.amps_iec, "IEC"), (plug.amps_north_america, "N. America"))
        if value
    ]
    lines = [
        (plug.name, 12.5, INK, True),
        (f"{plug.poles}, {plug.volts:g} V, " + ", ".join(amps), 11.0, INK, False),
        ("fits " + ", ".join(plug.mates), 11.0, MUTED, False),
    ]
    return translate(_draw_face(plug), width / 2, 76) + "".join(
        text(shorten(content, width, size), width / 2, 170 + 17 * i, size=size, fill=fill,
             anchor="middle", bold=bold)
        for i, (content, size, fill, bold) in enumerate(lines)
    )  # fmt: skip


def _draw_face(plug: Plug) -> str:
    face = get_face(plug)
    pins = plug.gender == "plug"
    side = -1 if pins else 1  # seen from its pins, a plug is the mirror image of its socket
    return "".join(
        [*_draw_outline(face, pins), *(_draw_contact(c, side, pins) for c in face.contacts)]
    )


def _draw_outline(face: Face, pins: bool) -> list[str]:
    w, h = face.width * _SCALE, face.height * _SCALE
    fill = _DARK if pins else _BODY
    if face.outline in {"round", "notched"}:
        ring = face.ring or _EDGE
        parts = [element("circle", cx=0, cy=0, r=w / 2, fill=fill, stroke=ring,
                         stroke_width=7 if face.ring else 2)]  # fmt: skip
        if face.outline == "notched":
            parts.append(element("rect", x=-7, y=h / 2 - 3, width=14, height=9, rx=2, fill=ring))
        return parts
    if face.outline == "box":
        return [element("rect", x=-w / 2, y=-h / 2, width=w, height=h, rx=8, fill=fill,
                        stroke=_EDGE, stroke_width=2)]  # fmt: skip
    cut = h * 0.3
    points = [(-w / 2, h / 2), (-w / 2, -h / 2 + cut), (-w / 2 + cut, -h / 2),
              (w / 2 - cut, -h / 2), (w / 2, -h / 2 + cut), (w / 2, h / 2)]  # fmt: skip
    parts = [
        element("polygon", points=format_points(points), fill=fill, stroke=_EDGE, stroke_width=2)
    ]
    if face.groove:
        parts.append(
            element("rect", x=-4, y=h / 2 - 7, width=8, height=8, fill=BACKGROUND, stroke=_EDGE)
        )
    return parts


def _draw_contact(contact: Contact, side: int, pins: bool) -> str:
    x, y = contact.x * _SCALE * side, contact.y * _SCALE
    w, h = contact.width * _SCALE, contact.height * _SCALE
    fill, ink = (_PIN, BACKGROUND) if pins else (_DARK, INK)
    if contact.shape == "round":
        shape = element("circle", cx=x, cy=y, r=w / 2, fill=fill)
    elif contact.shape == "arc":
        shape = _draw_arc(contact, side, fill)
    elif contact.shape == "tee":
        # a T on its side: a horizontal stem points outward from the middle of an upright slot
        stem_x = x - 2.7 if x > 0 else x + 2.7 - w
        upright = element("rect", x=x - 2.7, y=y - h / 2, width=5.4, height=h, rx=1, fill=fill)
        across = element("rect", x=stem_x, y=y - 2.7, width=w, height=5.4, rx=1, fill=fill)
        shape = (across if contact.pin == "across" else upright) if pins else upright + across
    else:
        shape = element("rect", x=x - w / 2, y=y - h / 2, width=w, height=h, rx=1, fill=fill)
    return shape + _draw_label(contact, x, y, ink)


def _draw_label(contact: Contact, x: float, y: float, ink: str) -> str:
    """Draw the label next to its contact, toward the middle of the face."""
    if not contact.label:
        return ""
    radius = math.hypot(x, y)
    if radius < 1:
        return text(contact.label, x + 13, y + 3, size=9, fill=ink, anchor="middle")
    distance = 15 if contact.shape in {"arc", "round"} else contact.height * _SCALE / 2 + 7
    if contact.shape in {"slot", "tee"} and abs(x) > 1:
        return text(contact.label, x, y + distance + 4, size=9, fill=ink, anchor="middle")
    inward = 1 - distance / radius
    return text(contact.label, x * inward, y * inward + 3, size=9, fill=ink, anchor="middle")


def _draw_arc(contact: Contact, side: int, fill: str) -> str:
    """Draw a blade that curves around the middle; the ground blade has a hook."""
    x, y = contact.x * _SCALE * side, contact.y * _SCALE
    radius, middle = math.hypot(x, y), math.atan2(y, x)
    half = contact.width * _SCALE / 2 / radius

    def locate(angle: float, distance: float) -> tuple[float, float]:
        return distance * math.cos(angle), distance * math.sin(angle)

    start, end = middle - half, middle + half
    blade: list[str | float] = ["M", *locate(start, radius)]
    blade += ["A", radius, radius, 0, 0, 1, *locate(end, radius)]
    if contact.label:
        blade += ["L", *locate(end, radius - 9)]
    return path(blade, stroke=fill, stroke_width=contact.height * _SCALE)


def _get_character(contact: Contact, *, pins: bool) -> str:
    if contact.shape == "round":
        return "o"
    if contact.shape == "tee":
        pin = "—" if contact.pin == "across" else "|"
        return pin if pins else "T"
    if contact.shape == "arc":
        return "("
    if contact.shape == "clip":
        return "="
    return "|" if contact.height > contact.width else "—"
