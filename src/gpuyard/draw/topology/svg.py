"""A machine as one SVG file: title, block diagram, bandwidth between GPUs, legend.

Text and shapes only: no fonts, scripts, styles or ids, so it stands alone or inside a page, and the
same machine always gives the same bytes.
"""

from gpuyard.draw.markup import FONT, element, number, shorten, text, words
from gpuyard.draw.palette import FADED, FRAME, GROUND
from gpuyard.draw.topology.blocks import draw_blocks
from gpuyard.draw.topology.heatmap import HeatMap
from gpuyard.draw.topology.labels import Label, pcie_labels
from gpuyard.draw.topology.layout import Layout, lay_out
from gpuyard.draw.topology.legend import WIDTH as LEGEND_WIDTH
from gpuyard.draw.topology.legend import Legend
from gpuyard.draw.topology.wires import draw_labels, draw_wires
from gpuyard.draw.topology.words import summary
from gpuyard.hardware.graph import MachineGraph

_MARGIN = 28.0
_TITLE_ROOM = 62.0
_SECTION_GAP = 34.0
_LEGEND_GAP = 48.0


def draw_svg(graph: MachineGraph) -> str:
    """The whole drawing as text."""
    layout = lay_out(graph)
    labels = pcie_labels(layout)
    wide = max([layout.width, *(label.right for label in labels)])
    heat_map = HeatMap(graph) if len(graph.gpus) > 1 else None
    legend = Legend(graph, layout, heat_map)
    below_width = LEGEND_WIDTH + (heat_map.width + _LEGEND_GAP if heat_map else 0)
    inner = max(wide, below_width)
    below = _TITLE_ROOM + layout.height + _SECTION_GAP
    height = below + max(legend.height, heat_map.height if heat_map else 0)
    legend_left = heat_map.width + _LEGEND_GAP if heat_map else 0
    parts = [
        *_title(graph, inner),
        _moved(_diagram(graph, layout, labels), (inner - wide) / 2, _TITLE_ROOM),
        _moved(heat_map.draw(), 0, below) if heat_map else "",
        _moved(legend.draw(), legend_left, below),
    ]
    return _page(graph, _moved(parts, _MARGIN, _MARGIN), inner + 2 * _MARGIN, height + 2 * _MARGIN)


def _page(graph: MachineGraph, drawing: str, width: float, height: float) -> str:
    ground = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10,
                     fill=GROUND, stroke=FRAME)  # fmt: skip
    described = words("title", graph.name) + "\n" + words("desc", describe(graph))
    return (
        element(
            "svg",
            f"\n{described}\n{ground}\n{drawing}\n",
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {number(width)} {number(height)}",
            role="img",
            font_family=FONT,
        )
        + "\n"
    )


def describe(graph: MachineGraph) -> str:
    """The drawing in a sentence, for those who don't see it."""
    kinds = {wire.kind for wire in graph.wires}
    links = "NVLink and PCIe" if "nvlink" in kinds else "PCIe"
    table = " Below it, the bandwidth between every two GPUs." if len(graph.gpus) > 1 else ""
    return f"Block diagram of {graph.name}: {summary(graph)}, joined by {links}.{table}"


def _title(graph: MachineGraph, width: float) -> list[str]:
    return [
        text(shorten(graph.name, width, 19), 0, 14, size=19, bold=True),
        text(shorten(summary(graph), width, 13), 0, 36, size=13, fill=FADED),
    ]


def _diagram(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    return [
        *draw_wires(graph, layout),
        *draw_blocks(graph, layout),
        *draw_labels(graph, layout, labels),
    ]


def _moved(parts: list[str], x: float, y: float) -> str:
    inside = "\n".join(part for part in parts if part)
    return element("g", f"\n{inside}\n", transform=f"translate({number(x)} {number(y)})")
