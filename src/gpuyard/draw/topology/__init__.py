"""A machine as a picture: a block diagram as SVG, and the same for a terminal."""

from gpuyard.draw.topology.svg import topology_svg
from gpuyard.draw.topology.terminal import topology_terminal

__all__ = ["topology_svg", "topology_terminal"]
