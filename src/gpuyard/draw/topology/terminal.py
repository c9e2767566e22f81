"""Draws a machine for a terminal: its PCIe tree, its NVLinks, and the paths and rates between GPUs."""

import textwrap
from typing import TYPE_CHECKING

from gpuyard.draw.topology.heatmap import HeatScale
from gpuyard.draw.topology.labels import (
    describe_path_classes,
    format_caption,
    format_gigabytes,
    format_rate,
    format_wire_name,
    summarize_machine,
)
from gpuyard.draw.topology.trays import MAX_GPUS, describe_uniform_rate, select_drawn_part
from gpuyard.draw.topology.tree import Branch, build_host_trees
from gpuyard.hardware.graph import GPU_LINKS, MachineGraph, Wire
from gpuyard.hardware.pairs import compute_bandwidth_matrix, compute_class_matrix, is_staged
from gpuyard.hardware.rings import STAGED_SHARE
from gpuyard.printable import make_printable
from gpuyard.units import format_share

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

_LABEL = 44
_LINE = 100
_CELL = 6
_STYLES = {
    "socket": "bold",
    "host-bridge": "dim",
    "switch": "blue",
    "gpu": "bold green",
    "nic": "magenta",
    "nvme": "yellow",
}
_CLASS_STYLES = {
    "NV": "green",
    "FL": "green",
    "PIX": "cyan",
    "PXB": "cyan",
    "PHB": "blue",
    "NODE": "yellow",
    "SYS": "red",
}


def draw_topology_text(graph: MachineGraph) -> "Group":
    """Return a rich renderable that needs at most 120 columns for up to 16 GPUs."""
    from rich.console import Group, RenderableType
    from rich.text import Text

    drawn, sentences = select_drawn_part(graph)
    parts: list[RenderableType] = [_build_tree(graph, drawn)]
    parts += [_format_socket_link(wire) for wire in drawn.wires if wire.kind == "socket"]
    parts += _format_nvlinks(graph)
    parts += [Text(sentence) for sentence in sentences]
    if uniform_rate := describe_uniform_rate(graph):
        parts.append(Text(uniform_rate))
    elif len(graph.gpus) > MAX_GPUS:
        note = f"The table of paths between {len(graph.gpus)} GPUs is too wide for a terminal; use --json or --svg."
        parts.append(Text(note, style="dim"))
    elif len(graph.gpus) > 1:
        parts += [Text(), _build_class_table(graph), _format_class_legend(graph)]
        parts += [Text(), _build_bandwidth_table(graph)]
        if any(is_staged(graph, a, b) for a in graph.gpus for b in graph.gpus):
            note = f"* staged through host memory: assumed at {format_share(STAGED_SHARE)} of the slowest link"
            parts.append(Text(note, style="dim"))
    return Group(*parts)


def _build_tree(graph: MachineGraph, drawn: MachineGraph) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text(_cut(graph.name, _LINE), style="bold")
    head.append(
        "\n" + textwrap.fill(make_printable(summarize_machine(graph)), _LINE), style="not bold dim"
    )
    tree = Tree(head, guide_style="dim")
    for root in build_host_trees(drawn):
        _add_branch(tree, root)
    return tree


def _add_branch(tree: "Tree", branch: Branch) -> None:
    from rich.text import Text

    device = branch.device
    line = Text(_cut(device.id, 24), style=_STYLES.get(device.kind, ""))
    line.append(f"  {_cut(format_caption(device), _LABEL)}", style="not bold default")
    if branch.wire is not None and branch.wire.kind == "pcie":
        link = f"  {format_wire_name(branch.wire)} · {format_rate(branch.wire.bytes_per_second)}"
        line.append(link, style="not bold blue")
    subtree = tree.add(line)
    for child in branch.children:
        _add_branch(subtree, child)


def _format_socket_link(wire: Wire) -> "Text":
    from rich.text import Text

    line = Text(f"{wire.a} ═══ {wire.b}", style="bold yellow")
    return line.append(
        f"  socket link · {format_rate(wire.bytes_per_second)}", style="not bold yellow"
    )


def _format_nvlinks(graph: MachineGraph) -> list["Text"]:
    """Return lines with the peers of each device, grouped by link; each link is listed once."""
    from rich.text import Text

    lines = []
    for device in sorted(graph.devices, key=lambda device: device.kind != "nvswitch"):
        peers_by_link: dict[str, list[str]] = {}
        for wire in graph.wires:
            if wire.kind in GPU_LINKS and _get_listing_end(graph, wire) == device.id:
                link = f"{format_wire_name(wire)} · {format_rate(wire.bytes_per_second)}"
                peers_by_link.setdefault(link, []).append(wire.other_end(device.id))
        for link, peers in peers_by_link.items():
            line = f"{device.id} ━━━ {_format_peers(graph, peers)}"
            lines.append(
                Text(_cut(line, _LINE), style="bold green").append(f"  {link}", "not bold green")
            )
    return lines


def _get_listing_end(graph: MachineGraph, wire: Wire) -> str:
    """Return the end that lists a link: the NVSwitch if there is one, otherwise the first device."""
    ends = [device.id for device in graph.devices if device.id in (wire.a, wire.b)]
    return next((end for end in ends if graph.device(end).kind == "nvswitch"), ends[0])


def _format_peers(graph: MachineGraph, peers: list[str]) -> str:
    all_gpus = len(peers) > 2 and tuple(peers) == graph.gpus
    return f"{peers[0]}–{peers[-1]}" if all_gpus else " ".join(peers)


def _build_class_table(graph: MachineGraph) -> "Table":
    from rich.text import Text

    rows = [
        [
            Text(
                _pad_cell(name),
                style=_CLASS_STYLES.get(name.rstrip("0123456789"), "dim"),
            )
            for name in row
        ]
        for row in compute_class_matrix(graph)
    ]
    return _build_matrix(graph, "Paths between GPUs", rows)


def _format_class_legend(graph: MachineGraph) -> "Text":
    from rich.text import Text

    return Text("\n".join(describe_path_classes(compute_class_matrix(graph))), style="dim")


def _build_bandwidth_table(graph: MachineGraph) -> "Table":
    from rich.text import Text

    rates = compute_bandwidth_matrix(graph)
    scale = HeatScale(rate for row in rates for rate in row)

    def cell(i: int, j: int) -> Text:
        if rates[i][j] is None:
            return Text(_pad_cell("–"), style="dim")
        value = format_gigabytes(rates[i][j]) + "*" * is_staged(graph, graph.gpus[i], graph.gpus[j])
        colors = f"{scale.ink(rates[i][j])} on {scale.fill(rates[i][j])}"
        return Text(_pad_cell(value), style=colors)

    count = range(len(rates))
    return _build_matrix(graph, "GB/s per direction", [[cell(i, j) for j in count] for i in count])


def _build_matrix(graph: MachineGraph, title: str, rows: list[list["Text"]]) -> "Table":
    """Return a table of GPUs by GPUs. Numbers replace ids that are too long for a column header."""
    from rich.table import Table

    table = Table(box=None, padding=0, pad_edge=False, header_style="dim",
                  title=title, title_justify="left", title_style="bold")  # fmt: skip
    table.add_column("", style="dim", no_wrap=True)
    for number, gpu in enumerate(graph.gpus):
        head = gpu if len(gpu) < _CELL else str(number)
        table.add_column(_pad_cell(head), width=_CELL, no_wrap=True)
    for number, (gpu, row) in enumerate(zip(graph.gpus, rows, strict=True)):
        side = gpu if len(gpu) < _CELL else f"{number} {_cut(gpu, 14)}"
        table.add_row(f"{side} ", *row)
    return table


def _pad_cell(content: str) -> str:
    """Align right, and keep a space on the right that the cell's color fills."""
    return f"{content:>{_CELL - 1}} "


def _cut(content: str, length: int) -> str:
    content = make_printable(content)  # labels must not contain terminal escapes
    return content if len(content) <= length else f"{content[: length - 1]}…"
