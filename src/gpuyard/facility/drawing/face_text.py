"""Faces for a terminal: a few characters that show which hole is where."""

from gpuyard.catalog import Plug
from gpuyard.facility.drawing.faces import Contact, face_of

_COLUMNS, _LINES = 13, 5


def face_text(plug: Plug) -> list[str]:
    """Five lines: | and — are slots, o is round, ( is a curved blade."""
    face = face_of(plug)
    side = -1 if plug.gender == "plug" else 1
    grid = [[" "] * _COLUMNS for _ in range(_LINES)]
    for contact in face.contacts:
        column = round((contact.x * side / face.width + 0.5) * (_COLUMNS - 3)) + 1
        line = min(round((contact.y / face.height + 0.5) * (_LINES - 1)), _LINES - 1)
        grid[line][column] = _sign(contact)
    left, right = ("(", ")") if face.outline in {"round", "notched"} else ("[", "]")
    return [left + "".join(line) + right for line in grid]


def _sign(contact: Contact) -> str:
    if contact.shape == "round":
        return "o"
    if contact.shape == "tee":
        return "T"
    if contact.shape == "arc":
        return "("
    if contact.shape == "clip":
        return "="
    return "|" if contact.height > contact.width else "—"
