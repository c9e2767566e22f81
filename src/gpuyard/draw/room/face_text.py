"""Faces for a terminal: a few characters that show which hole is where."""

from gpuyard.catalog.facility import Plug
from gpuyard.draw.room.faces import Contact, face_of

_COLUMNS, _LINES = 13, 5


def face_text(plug: Plug) -> list[str]:
    """Five lines: | and — are slots, T is both in one, o is round, ( is a curved blade."""
    face = face_of(plug)
    side = -1 if plug.gender == "plug" else 1
    grid = [[" "] * _COLUMNS for _ in range(_LINES)]
    across = max(abs(contact.x) for contact in face.contacts) or 1.0
    down = max(abs(contact.y) for contact in face.contacts) or 1.0
    for contact in face.contacts:
        column = _COLUMNS // 2 + round(contact.x * side / across * 3)
        line = _LINES // 2 + round(contact.y / down * (1 if down < 9 else 2))
        grid[line][column] = _sign(contact, pins=side < 0)
    left, right = ("(", ")") if face.outline in {"round", "notched"} else ("[", "]")
    return [left + "".join(line) + right for line in grid]


def _sign(contact: Contact, *, pins: bool) -> str:
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
