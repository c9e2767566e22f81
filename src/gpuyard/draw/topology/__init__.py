"""Draws the topology of a machine: a block diagram as SVG, and a tree with tables for a terminal."""

from gpuyard.draw.topology.svg import draw_topology_svg
from gpuyard.draw.topology.terminal import draw_topology_text

__all__ = ["draw_topology_svg", "draw_topology_text"]
