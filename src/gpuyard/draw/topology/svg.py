"""A machine as one SVG file: title, block diagram, bandwidth between GPUs, legend."""

from gpuyard.draw.markup import element, moved, page, shorten, text, words, wrap
from gpuyard.draw.palette import BLUE, FADED, GREEN, GREY, GROUND, INK, ORANGE, PURPLE, Paint
from gpuyard.draw.topology.columns import Box
from gpuyard.draw.topology.heatmap import HeatMap
from gpuyard.draw.topology.layout import Layout, lay_out
from gpuyard.draw.topology.legend import WIDTH as LEGEND_WIDTH
from gpuyard.draw.topology.legend import Legend
from gpuyard.draw.topology.nvlinks import switched_bundles
from gpuyard.draw.topology.trays import drawn_part, one_rate
from gpuyard.draw.topology.wires import Label, draw_labels, draw_wires, pcie_labels
from gpuyard.draw.topology.words import KIND_NAMES, caption, rate, summary
from gpuyard.hardware.graph import GPU_LINKS, Device, DeviceKind, MachineGraph

_MARGIN = 28.0
_TITLE_ROOM = 62.0
_SECTION_GAP = 34.0
_LEGEND_GAP = 48.0
_PAINTS: dict[DeviceKind, Paint] = {
    "socket": GREY,
    "host-bridge": (GROUND, "#64748b"),
    "switch": BLUE,
    "gpu": GREEN,
    "nic": PURPLE,
    "nvme": ORANGE,
    "nvswitch": (GREEN[1], "#3a5f0b"),
}
_NAME, _CAPTION = 13.0, 11.0
_SENTENCE, _SENTENCE_LINE = 13.0, 19.0
_PADDING = 6.0


def topology_svg(graph: MachineGraph) -> str:
    """The whole drawing as text."""
    shown, sentences = drawn_part(graph)
    layout = lay_out(shown)
    labels = pcie_labels(layout)
    wide = max([layout.width, *(label.right for label in labels)])
    alike = one_rate(graph)
    heat_map = HeatMap(graph) if len(graph.gpus) > 1 and not alike else None
    legend = Legend(graph, layout, heat_map)
    below_width = LEGEND_WIDTH + (heat_map.width + _LEGEND_GAP if heat_map else 0)
    inner = max(wide, below_width)
    under_title = [
        line
        for sentence in (*sentences, *([alike] if alike else []))
        for line in wrap(sentence, inner, _SENTENCE, 4)
    ]
    title_room = _TITLE_ROOM + _SENTENCE_LINE * len(under_title)
    below = title_room + layout.height + _SECTION_GAP
    height = below + max(legend.height, heat_map.height if heat_map else 0)
    legend_left = heat_map.width + _LEGEND_GAP if heat_map else 0
    parts = [
        *_title(graph, inner),
        *(
            text(line, 0, 36 + _SENTENCE_LINE * number, size=_SENTENCE, fill=FADED)
            for number, line in enumerate(under_title, 1)
        ),
        _group(_diagram(shown, layout, labels), (inner - wide) / 2, title_room),
        _group(heat_map.draw(), 0, below) if heat_map else "",
        _group(legend.draw(), legend_left, below),
    ]
    drawing = _group(parts, _MARGIN, _MARGIN)
    wide, high = inner + 2 * _MARGIN, height + 2 * _MARGIN
    about = " ".join([_describe(graph, table=heat_map is not None), *sentences, alike]).rstrip()
    return page([drawing], wide, high, title=graph.name, about=about)


def _describe(graph: MachineGraph, *, table: bool) -> str:
    """The drawing in a sentence, for those who don't see it."""
    kinds = {wire.kind for wire in graph.wires}
    links = "PCIe"
    if kinds & GPU_LINKS:
        links = "NVLink and PCIe" if "nvlink" in kinds else "links of their own and PCIe"
    below = " Below it, the bandwidth between every two GPUs." if table else ""
    return f"Block diagram of {graph.name}: {summary(graph)}, connected by {links}.{below}"


def _title(graph: MachineGraph, width: float) -> list[str]:
    return [
        text(shorten(graph.name, width, 19), 0, 14, size=19, bold=True),
        text(shorten(summary(graph), width, 13), 0, 36, size=13, fill=FADED),
    ]


def _diagram(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    return [
        *draw_wires(graph, layout),
        *_blocks(graph, layout),
        *draw_labels(graph, layout, labels),
    ]


def _group(parts: list[str], x: float, y: float) -> str:
    inside = "\n".join(part for part in parts if part)
    return moved(f"\n{inside}\n", x, y)


def _blocks(graph: MachineGraph, layout: Layout) -> list[str]:
    """CPUs first, so that their host bridges lie on top of them."""
    ordered = sorted(graph.devices, key=lambda device: device.kind != "socket")
    return [_block(graph, device, layout.boxes[device.id]) for device in ordered]


def _block(graph: MachineGraph, device: Device, box: Box) -> str:
    fill, stroke = _PAINTS[device.kind]
    frame = element(
        "rect", x=box.x, y=box.y, width=box.width, height=box.height,
        rx=4 if device.kind == "host-bridge" else 7, fill=fill, stroke=stroke, stroke_width=1.4,
    )  # fmt: skip
    full = [device.id, KIND_NAMES[device.kind], device.label, device.gpu or ""]
    tooltip = words("title", " · ".join(part for part in full if part))
    return element("g", tooltip + frame + _inscription(graph, device, box), data_device=device.id)


def _inscription(graph: MachineGraph, device: Device, box: Box) -> str:
    room = box.width - 2 * _PADDING
    if device.kind == "nvswitch":
        return _one_line(device, box, _fabric(graph, device), GROUND, GROUND)
    if device.kind == "host-bridge":
        return _one_line(device, box, _beside(device), INK, FADED)
    if device.kind == "socket":
        return _lines(device, box, box.y + 20, wrap(caption(device), room, _CAPTION, 1))
    rows = 1 if box.height < 60 else 2
    below = wrap(caption(device), room, _CAPTION, rows)
    size = _CAPTION if box.height < 40 else _NAME
    spacing = 12.0 if box.height < 40 else 15.0
    first = box.y + box.height / 2 + size * 0.36 - spacing * len(below) / 2
    return _lines(device, box, first, below, size=size, spacing=spacing)


def _lines(
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
                          fill=FADED, anchor="middle"))  # fmt: skip
    return "".join(drawn)


def _one_line(device: Device, box: Box, beside: str, *inks: str) -> str:
    """The id in bold and the rest beside it."""
    room = box.width - 2 * _PADDING
    says = shorten(f"{device.id}  {beside}".rstrip(), room, _CAPTION)
    name, rest = says[: len(device.id)], says[len(device.id) :].strip()
    line = words("tspan", name, font_weight="600", fill=inks[0])
    line += words("tspan", rest, dx=5, fill=inks[1]) if rest else ""
    return element("text", line, x=box.middle, y=box.y + box.height / 2 + 4,
                   font_size=_CAPTION, text_anchor="middle")  # fmt: skip


def _beside(device: Device) -> str:
    # a bridge that is only numbered needs no label of its own
    numbered = device.label.rstrip("0123456789 ").lower() == KIND_NAMES[device.kind].lower()
    return KIND_NAMES[device.kind] if numbered else caption(device)


def _fabric(graph: MachineGraph, device: Device) -> str:
    """A switch that does all the work alone says what each GPU gets from it."""
    rates = {bundle.bytes_per_second for bundle in switched_bundles(graph).values()}
    alone = len(rates) == len(graph.of_kind("nvswitch")) == 1
    return f"{_beside(device)} · {rate(min(rates))} to each GPU" if alone else _beside(device)
