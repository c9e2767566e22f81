"""Describes the faces of sockets as shapes, seen from the front, in millimeters from the middle.

The shapes show where the holes are, which hole is earth, and how two faces differ. Do not use them to wire or
manufacture parts.
"""

import math
from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog.facility import Plug

Outline = Literal["round", "box", "notched", "chamfered"]


@dataclass(frozen=True)
class Contact:
    """One hole: (x, y) is its middle. An arc belongs to a locking socket."""

    label: str
    x: float
    y: float
    width: float = 2.0
    height: float = 6.0
    shape: Literal["slot", "round", "arc", "tee", "clip"] = "slot"
    pin: Literal["across", "upright"] = "upright"
    """Orientation of the pin that enters a T-slot."""


@dataclass(frozen=True)
class Face:
    """The outline of a socket and its contacts."""

    outline: Outline
    width: float
    height: float
    contacts: tuple[Contact, ...]
    ring: str = ""
    groove: bool = False


def _iec_320(width: float, height: float, *, upright: bool, groove: bool = False) -> Face:
    size = (2.4, 5.0) if upright else (5.6, 2.4)
    offset = width * 0.29
    return Face(
        "chamfered",
        width,
        height,
        (
            Contact("", -offset, 2.2, *size),
            Contact("E", 0, -2.4, *size),
            Contact("", offset, 2.2, *size),
        ),
        groove=groove,
    )


def _straight(hot: Contact, neutral: Contact) -> Face:
    return Face("box", 30, 30, (neutral, hot, Contact("G", 0, 7.5, 4.6, 4.6, "round")))


def _locking(blades: int, *, ground_inside: bool = False, diameter: float = 36) -> Face:
    """Return a locking socket: curved blades around the middle, one of them ground."""
    step = 2 * math.pi / blades
    radius = diameter * 0.3
    contacts = tuple(
        Contact(
            "G" if i == 0 and not ground_inside else "",
            radius * math.sin(i * step),
            -radius * math.cos(i * step),
            8.5,
            2.4,
            "arc",
        )
        for i in range(blades)
    )
    middle = (Contact("G", 0, 0, 4.4, 4.4, "round"),) if ground_inside else ()
    return Face("round", diameter, diameter, contacts + middle)


def _pin_and_sleeve(poles: int, hour: int, amps: float, color: str) -> Face:
    """Return an IEC 60309 socket: round holes on a circle, with the key at 6 o'clock.

    The position of the larger earth hole encodes the voltage: 6h is next to the key, 9h a quarter turn further.
    """
    diameter = 36 if amps <= 20 else 42 if amps <= 32 else 50
    radius = diameter * 0.29
    earth = math.pi * hour / 6
    pins = []
    for index in range(poles + 1):
        angle = earth + index * 2 * math.pi / (poles + 1)
        label, size = ("E", 6.4) if index == 0 else ("", 4.8)
        pins.append(
            Contact(label, radius * math.sin(angle), -radius * math.cos(angle), size, size, "round")
        )
    ring = {"blue": "#1d5fae", "red": "#c02626"}[color]
    return Face("notched", diameter, diameter, tuple(pins), ring)


_SLOT_L = Contact("", 6.3, -3, 2.2, 6.6)
_FACES = {
    "c13": _iec_320(24, 16, upright=True),
    "c15": _iec_320(24, 16, upright=True, groove=True),
    "c19": _iec_320(30, 22, upright=False),
    "nema-5-15r": _straight(_SLOT_L, Contact("N", -6.3, -3, 2.2, 8.2)),
    "nema-5-20r": _straight(_SLOT_L, Contact("N", -6.3, -3, 7.0, 8.2, "tee", "across")),
    "nema-6-20r": _straight(Contact("", 6.3, -3, 7.0, 2.4), Contact("", -6.3, -3, 7.0, 8.2, "tee")),
    "nema-l5-20r": _locking(3),
    "nema-l5-30r": _locking(3, diameter=42),
    "nema-l6-20r": _locking(3),
    "nema-l6-30r": _locking(3, diameter=42),
    "nema-l14-30r": _locking(4, diameter=42),
    "nema-l15-30r": _locking(4, diameter=42),
    "nema-l21-30r": _locking(4, ground_inside=True, diameter=42),
    "cs8364c": _locking(4, diameter=50),
    "cee-7-4": Face(
        "round",
        38,
        38,
        (
            Contact("", -9.5, 0, 4.8, 4.8, "round"),
            Contact("", 9.5, 0, 4.8, 4.8, "round"),
            Contact("E", 0, -16.5, 5, 3.4, "clip"),
            Contact("", 0, 16.5, 5, 3.4, "clip"),
        ),
    ),
    "bs-1363": Face(
        "box",
        38,
        38,
        (Contact("E", 0, -9, 4, 8), Contact("", 10.5, 8, 6.5, 4), Contact("", -10.5, 8, 6.5, 4)),
    ),
}
_POLES = {"2P+E": 2, "3P+E": 3, "3P+N+E": 4}


def get_face(plug: Plug) -> Face:
    """Return the face of a socket. For a plug, return the face of the first socket that it fits."""
    socket = plug.id if plug.gender == "socket" else plug.mates[0]
    if plug.id == "c14":
        socket = "c13"
    if plug.standard == "IEC 60309":
        amps = plug.amps_iec or plug.amps_north_america or 0
        hour = 9 if "-9h" in plug.id else 6
        return _pin_and_sleeve(_POLES[plug.poles], hour, amps, plug.color)
    return _FACES[socket]
