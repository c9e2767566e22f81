"""Drawings: the faces of plugs, and racks from the front and from the rear."""

from gpuyard.draw.room.elevation import draw_racks
from gpuyard.draw.room.face_svg import draw_face, draw_plugs
from gpuyard.draw.room.face_text import face_text

__all__ = ["draw_face", "draw_plugs", "draw_racks", "face_text"]
