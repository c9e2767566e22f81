"""Faces of plugs and sockets as SVG: holes dark on a light face, pins light on a dark one."""

import math
from collections.abc import Sequence

from gpuyard.catalog.facility import Plug
from gpuyard.draw.markup import FONT, element, number, shorten, text, words
from gpuyard.draw.palette import FADED, FRAME, GROUND, INK
from gpuyard.draw.room.faces import Contact, Face, face_of

_SCALE = 2.7
_TILE_WIDTH, _TILE_HEIGHT, _COLUMNS = 308.0, 236.0, 4
_BODY, _DARK, _EDGE, _PIN = "#f3f0e8", "#33383f", "#5b616b", "#d8dde3"


def draw_face(plug: Plug) -> str:
    """One face as a whole SVG file."""
    size = 150.0
    middle = element(
        "g", _face(plug), transform=f"translate({number(size / 2)} {number(size / 2)})"
    )
    return _page(middle, size, size, plug.name, f"Face of the {plug.name}.")


def draw_plugs(plugs: Sequence[Plug]) -> str:
    """All faces on one sheet, with name, ratings and what they fit."""
    rows = math.ceil(len(plugs) / _COLUMNS)
    tiles = [
        element(
            "g",
            _tile(plug),
            transform=f"translate({number(16 + i % _COLUMNS * _TILE_WIDTH)}"
            f" {number(16 + i // _COLUMNS * _TILE_HEIGHT)})",
        )
        for i, plug in enumerate(plugs)
    ]
    width, height = 32 + _COLUMNS * _TILE_WIDTH, 32 + rows * _TILE_HEIGHT
    about = "Faces of plugs and sockets with their ratings and what they fit."
    return _page("\n".join(tiles), width, height, "Plugs and sockets", about)


def _tile(plug: Plug) -> str:
    room = _TILE_WIDTH - 20
    middle = f"translate({number(room / 2)} 76)"
    amps = [
        f"{value:g} A {words_}"
        for value, words_ in ((plug.amps_iec, "IEC"), (plug.amps_north_america, "N. America"))
        if value
    ]
    lines = [
        (plug.name, 12.5, INK, True),
        (f"{plug.poles}, {plug.volts:g} V, " + ", ".join(amps), 11.0, INK, False),
        ("fits " + ", ".join(plug.mates), 11.0, FADED, False),
    ]
    return element("g", _face(plug), transform=middle) + "".join(
        text(shorten(content, room, size), room / 2, 170 + 17 * i, size=size, fill=fill,
             anchor="middle", bold=bold)
        for i, (content, size, fill, bold) in enumerate(lines)
    )  # fmt: skip


def _face(plug: Plug) -> str:
    face = face_of(plug)
    pins = plug.gender == "plug"
    side = -1 if pins else 1  # a plug is seen from its pins: left and right are exchanged
    return "".join([*_outline(face, pins), *(_contact(c, side, pins) for c in face.contacts)])


def _outline(face: Face, pins: bool) -> list[str]:
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
    corners = [(-w / 2, h / 2), (-w / 2, -h / 2 + cut), (-w / 2 + cut, -h / 2),
               (w / 2 - cut, -h / 2), (w / 2, -h / 2 + cut), (w / 2, h / 2)]  # fmt: skip
    points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    parts = [element("polygon", points=points, fill=fill, stroke=_EDGE, stroke_width=2)]
    if face.groove:
        parts.append(
            element("rect", x=-4, y=h / 2 - 7, width=8, height=8, fill=GROUND, stroke=_EDGE)
        )
    return parts


def _contact(contact: Contact, side: int, pins: bool) -> str:
    x, y = contact.x * _SCALE * side, contact.y * _SCALE
    w, h = contact.width * _SCALE, contact.height * _SCALE
    fill, ink = (_PIN, "#ffffff") if pins else (_DARK, INK)
    if contact.shape == "round":
        shape = element("circle", cx=x, cy=y, r=w / 2, fill=fill)
    elif contact.shape == "arc":
        shape = _arc(contact, side, fill)
    elif contact.shape == "tee":
        # lying down: a stem outwards from the middle of an upright slot
        inner = x - 2.7 if x > 0 else x + 2.7 - w
        upright = element("rect", x=x - 2.7, y=y - h / 2, width=5.4, height=h, rx=1, fill=fill)
        across = element("rect", x=inner, y=y - 2.7, width=w, height=5.4, rx=1, fill=fill)
        shape = (across if contact.pin == "across" else upright) if pins else upright + across
    else:
        shape = element("rect", x=x - w / 2, y=y - h / 2, width=w, height=h, rx=1, fill=fill)
    return shape + _label(contact, x, y, ink)


def _label(contact: Contact, x: float, y: float, ink: str) -> str:
    """Beside its contact, towards the middle of the face."""
    if not contact.label:
        return ""
    length = math.hypot(x, y)
    if length < 1:
        return text(contact.label, x + 13, y + 3, size=9, fill=ink, anchor="middle")
    reach = 15 if contact.shape in {"arc", "round"} else contact.height * _SCALE / 2 + 7
    if contact.shape in {"slot", "tee"} and abs(x) > 1:
        return text(contact.label, x, y + reach + 4, size=9, fill=ink, anchor="middle")
    inwards = 1 - reach / length
    return text(contact.label, x * inwards, y * inwards + 3, size=9, fill=ink, anchor="middle")


def _arc(contact: Contact, side: int, fill: str) -> str:
    """A blade bent around the middle; that of the ground has a hook."""
    x, y = contact.x * _SCALE * side, contact.y * _SCALE
    radius, around = math.hypot(x, y), math.atan2(y, x)
    half = contact.width * _SCALE / 2 / radius
    start = (radius * math.cos(around - half), radius * math.sin(around - half))
    end = (radius * math.cos(around + half), radius * math.sin(around + half))
    d = f"M{number(start[0])} {number(start[1])}A{number(radius)} {number(radius)} 0 0 1 "
    d += f"{number(end[0])} {number(end[1])}"
    if contact.label:  # the ground has a hook
        inner = radius - 9
        d += f"L{number(inner * math.cos(around + half))} {number(inner * math.sin(around + half))}"
    return element("path", d=d, fill="none", stroke=fill, stroke_width=contact.height * _SCALE)


def _page(inside: str, width: float, height: float, title: str, about: str) -> str:
    ground = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10,
                     fill=GROUND, stroke=FRAME)  # fmt: skip
    return (
        element(
            "svg",
            f"\n{words('title', title)}\n{words('desc', about)}\n{ground}\n{inside}\n",
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {number(width)} {number(height)}",
            role="img",
            font_family=FONT,
        )
        + "\n"
    )
