"""A machine as a picture: a block diagram as SVG, and the same for a terminal."""

from gpuyard.draw.topology.svg import draw_svg
from gpuyard.draw.topology.terminal import draw_terminal

__all__ = ["draw_svg", "draw_terminal"]
