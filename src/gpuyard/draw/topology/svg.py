"""Draws a machine as an SVG file: title, block diagram, bandwidth between GPUs, and legend."""

from gpuyard.draw.markup import (
    element,
    render_drawing,
    shorten,
    text,
    text_element,
    translate,
    wrap,
)
from gpuyard.draw.palette import BACKGROUND, BLUE, GRAY, GREEN, INK, MUTED, ORANGE, PURPLE, Paint
from gpuyard.draw.topology.columns import Box
from gpuyard.draw.topology.heatmap import HeatMap
from gpuyard.draw.topology.labels import KIND_NAMES, format_caption, format_rate, summarize_machine
from gpuyard.draw.topology.layout import Layout, lay_out
from gpuyard.draw.topology.legend import WIDTH as LEGEND_WIDTH
from gpuyard.draw.topology.legend import Legend
from gpuyard.draw.topology.nvlinks import bundle_switch_links
from gpuyard.draw.topology.trays import describe_uniform_rate, select_drawn_part
from gpuyard.draw.topology.wires import Label, draw_labels, draw_wires, place_pcie_labels
from gpuyard.hardware.graph import GPU_LINKS, Device, DeviceKind, MachineGraph

_MARGIN = 28.0
_TITLE_HEIGHT = 62.0
_SECTION_GAP = 34.0
_LEGEND_GAP = 48.0
_PAINTS: dict[DeviceKind, Paint] = {
    "socket": GRAY,
    "host-bridge": (BACKGROUND, "#64748b"),
    "switch": BLUE,
    "gpu": GREEN,
    "nic": PURPLE,
    "nvme": ORANGE,
    "nvswitch": (GREEN[1], "#3a5f0b"),
}
_NAME, _CAPTION = 13.0, 11.0
_SENTENCE, _SENTENCE_LINE = 13.0, 19.0
_PADDING = 6.0


def draw_topology_svg(graph: MachineGraph) -> str:
    """Draw the whole machine; of identical trays in a large machine, only one is drawn."""
    drawn, sentences = select_drawn_part(graph)
    layout = lay_out(drawn)
    labels = place_pcie_labels(layout)
    diagram_width = max([layout.width, *(label.right for label in labels)])
    uniform_rate = describe_uniform_rate(graph)
    heat_map = HeatMap(graph) if len(graph.gpus) > 1 and not uniform_rate else None
    legend = Legend(graph, layout, heat_map)
    legend_left = heat_map.width + _LEGEND_GAP if heat_map else 0
    inner_width = max(diagram_width, LEGEND_WIDTH + legend_left)
    subtitle = [
        line
        for sentence in (*sentences, *([uniform_rate] if uniform_rate else []))
        for line in wrap(sentence, inner_width, _SENTENCE, 4)
    ]
    title_height = _TITLE_HEIGHT + _SENTENCE_LINE * len(subtitle)
    below = title_height + layout.height + _SECTION_GAP
    height = below + max(legend.height, heat_map.height if heat_map else 0)
    parts = [
        *_draw_title(graph, inner_width),
        *(
            text(line, 0, 36 + _SENTENCE_LINE * number, size=_SENTENCE, fill=MUTED)
            for number, line in enumerate(subtitle, 1)
        ),
        _group(
            _draw_diagram(drawn, layout, labels), (inner_width - diagram_width) / 2, title_height
        ),
        _group(heat_map.draw(), 0, below) if heat_map else "",
        _group(legend.draw(), legend_left, below),
    ]
    drawing = _group(parts, _MARGIN, _MARGIN)
    description = _describe(graph, table=heat_map is not None)
    about = " ".join([description, *sentences, uniform_rate]).rstrip()
    width, height = inner_width + 2 * _MARGIN, height + 2 * _MARGIN
    return render_drawing([drawing], width, height, title=graph.name, about=about)


def _describe(graph: MachineGraph, *, table: bool) -> str:
    """Describe the drawing for screen readers."""
    kinds = {wire.kind for wire in graph.wires}
    links = "PCIe"
    if kinds & GPU_LINKS:
        links = "NVLink and PCIe" if "nvlink" in kinds else "GPU-to-GPU links and PCIe"
    below = " Below it is a table of the bandwidth between each pair of GPUs." if table else ""
    return (
        f"Block diagram of {graph.name}: {summarize_machine(graph)}, connected by {links}.{below}"
    )


def _draw_title(graph: MachineGraph, width: float) -> list[str]:
    return [
        text(shorten(graph.name, width, 19), 0, 14, size=19, bold=True),
        text(shorten(summarize_machine(graph), width, 13), 0, 36, size=13, fill=MUTED),
    ]


def _draw_diagram(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    return [
        *draw_wires(graph, layout),
        *_draw_blocks(graph, layout),
        *draw_labels(graph, layout, labels),
    ]


def _group(parts: list[str], x: float, y: float) -> str:
    inside = "\n".join(part for part in parts if part)
    return translate(f"\n{inside}\n", x, y)


def _draw_blocks(graph: MachineGraph, layout: Layout) -> list[str]:
    """Draw CPUs first, so that their host bridges lie on top of them."""
    ordered = sorted(graph.devices, key=lambda device: device.kind != "socket")
    return [_draw_block(graph, device, layout.boxes[device.id]) for device in ordered]


def _draw_block(graph: MachineGraph, device: Device, box: Box) -> str:
    fill, stroke = _PAINTS[device.kind]
    frame = element(
        "rect", x=box.x, y=box.y, width=box.width, height=box.height,
        rx=4 if device.kind == "host-bridge" else 7, fill=fill, stroke=stroke, stroke_width=1.4,
    )  # fmt: skip
    names = [device.id, KIND_NAMES[device.kind], device.label, device.gpu or ""]
    tooltip = text_element("title", " · ".join(name for name in names if name))
    return element(
        "g", tooltip + frame + _draw_block_text(graph, device, box), data_device=device.id
    )


def _draw_block_text(graph: MachineGraph, device: Device, box: Box) -> str:
    inner_width = box.width - 2 * _PADDING
    if device.kind == "nvswitch":
        return _draw_one_line(device, box, _format_nvswitch(graph, device), BACKGROUND, BACKGROUND)
    if device.kind == "host-bridge":
        return _draw_one_line(device, box, _format_name(device), INK, MUTED)
    if device.kind == "socket":
        below = wrap(format_caption(device), inner_width, _CAPTION, 1)
        return _draw_lines(device, box, box.y + 20, below)
    rows = 1 if box.height < 60 else 2
    below = wrap(format_caption(device), inner_width, _CAPTION, rows)
    size = _CAPTION if box.height < 40 else _NAME
    spacing = 12.0 if box.height < 40 else 15.0
    first = box.y + box.height / 2 + size * 0.36 - spacing * len(below) / 2
    return _draw_lines(device, box, first, below, size=size, spacing=spacing)


def _draw_lines(
    device: Device,
    box: Box,
    first: float,
    below: list[str],
    *,
    size: float = _NAME,
    spacing: float = 15.0,
) -> str:
    name = shorten(device.id, box.width - 2 * _PADDING, size)
    drawn = [text(name, box.middle, first, size=size, anchor="middle", bold=True)]
    smaller = _CAPTION - 1 if size < _NAME else _CAPTION
    for number, line in enumerate(below, 1):
        drawn.append(text(line, box.middle, first + spacing * number, size=smaller,
                          fill=MUTED, anchor="middle"))  # fmt: skip
    return "".join(drawn)


def _draw_one_line(device: Device, box: Box, details: str, *inks: str) -> str:
    """Draw the id in bold with the details after it."""
    content = shorten(f"{device.id}  {details}".rstrip(), box.width - 2 * _PADDING, _CAPTION)
    name, rest = content[: len(device.id)], content[len(device.id) :].strip()
    line = text_element("tspan", name, font_weight="600", fill=inks[0])
    line += text_element("tspan", rest, dx=5, fill=inks[1]) if rest else ""
    return element("text", line, x=box.middle, y=box.y + box.height / 2 + 4,
                   font_size=_CAPTION, text_anchor="middle")  # fmt: skip


def _format_name(device: Device) -> str:
    # a label such as "host bridge 1" adds nothing to the id
    numbered = device.label.rstrip("0123456789 ").lower() == KIND_NAMES[device.kind].lower()
    return KIND_NAMES[device.kind] if numbered else format_caption(device)


def _format_nvswitch(graph: MachineGraph, device: Device) -> str:
    """Name the switch; if it is the only one, add its rate to each GPU."""
    rates = {bundle.bytes_per_second for bundle in bundle_switch_links(graph).values()}
    name = _format_name(device)
    is_only_switch = len(rates) == len(graph.devices_of_kind("nvswitch")) == 1
    return f"{name} · {format_rate(min(rates))} to each GPU" if is_only_switch else name
