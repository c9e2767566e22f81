"""A machine in a terminal: the tree of its host side, its NVLinks, and who reaches whom how fast."""

import textwrap
from typing import TYPE_CHECKING

from gpuyard.draw.topology.heatmap import HeatScale
from gpuyard.draw.topology.trays import MOST_GPUS, drawn_part, one_rate
from gpuyard.draw.topology.tree import Branch, host_trees
from gpuyard.draw.topology.words import caption, class_words, gigabytes, rate, summary, wire_name
from gpuyard.hardware.graph import GPU_LINKS, MachineGraph, Wire
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix, is_staged
from gpuyard.hardware.rings import STAGED_SHARE
from gpuyard.printable import printable
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


def topology_terminal(graph: MachineGraph) -> "Group":
    """Something that rich prints; at most 120 columns for up to 16 GPUs."""
    from rich.console import Group, RenderableType
    from rich.text import Text

    shown, sentences = drawn_part(graph)
    parts: list[RenderableType] = [_tree(graph, shown)]
    parts += [_socket_line(wire) for wire in shown.wires if wire.kind == "socket"]
    parts += _nvlink_lines(graph)
    parts += [Text(sentence) for sentence in sentences]
    if alike := one_rate(graph):
        parts.append(Text(alike))
    elif len(graph.gpus) > MOST_GPUS:
        many = f"The paths and rates of {len(graph.gpus)} GPUs are too many for a table here: see --json or --svg."
        parts.append(Text(many, style="dim"))
    elif len(graph.gpus) > 1:
        parts += [Text(), _class_table(graph), _class_legend(graph)]
        parts += [Text(), _bandwidth_table(graph)]
        if any(is_staged(graph, a, b) for a in graph.gpus for b in graph.gpus):
            note = f"* staged through host memory: assumed at {format_share(STAGED_SHARE)} of the slowest link"
            parts.append(Text(note, style="dim"))
    return Group(*parts)


def _tree(graph: MachineGraph, shown: MachineGraph) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text(_cut(graph.name, _LINE), style="bold")
    head.append("\n" + textwrap.fill(printable(summary(graph)), _LINE), style="not bold dim")
    tree = Tree(head, guide_style="dim")
    for root in host_trees(shown):
        _grow(tree, root)
    return tree


def _grow(tree: "Tree", branch: Branch) -> None:
    from rich.text import Text

    device = branch.device
    line = Text(_cut(device.id, 24), style=_STYLES.get(device.kind, ""))
    line.append(f"  {_cut(caption(device), _LABEL)}", style="not bold default")
    if branch.wire is not None and branch.wire.kind == "pcie":
        how = f"  {wire_name(branch.wire)} · {rate(branch.wire.bytes_per_second)}"
        line.append(how, style="not bold blue")
    grown = tree.add(line)
    for child in branch.children:
        _grow(grown, child)


def _socket_line(wire: Wire) -> "Text":
    from rich.text import Text

    line = Text(f"{wire.a} ═══ {wire.b}", style="bold yellow")
    return line.append(f"  socket link · {rate(wire.bytes_per_second)}", style="not bold yellow")


def _nvlink_lines(graph: MachineGraph) -> list["Text"]:
    """A line a device: what it reaches over how many links; each link is told once."""
    from rich.text import Text

    lines = []
    for device in sorted(graph.devices, key=lambda device: device.kind != "nvswitch"):
        reached: dict[str, list[str]] = {}
        for wire in graph.wires:
            if wire.kind in GPU_LINKS and _told_by(graph, wire) == device.id:
                how = f"{wire_name(wire)} · {rate(wire.bytes_per_second)}"
                reached.setdefault(how, []).append(wire.other(device.id))
        for how, others in reached.items():
            told = f"{device.id} ━━━ {_row(graph, others)}"
            lines.append(
                Text(_cut(told, _LINE), style="bold green").append(f"  {how}", "not bold green")
            )
    return lines


def _told_by(graph: MachineGraph, wire: Wire) -> str:
    """The NVSwitch where there is one, else the end that comes first."""
    ends = [device.id for device in graph.devices if device.id in (wire.a, wire.b)]
    return next((end for end in ends if graph.device(end).kind == "nvswitch"), ends[0])


def _row(graph: MachineGraph, others: list[str]) -> str:
    everything = len(others) > 2 and tuple(others) == graph.gpus
    return f"{others[0]}–{others[-1]}" if everything else " ".join(others)


def _class_table(graph: MachineGraph) -> "Table":
    from rich.text import Text

    rows = [
        [
            Text(
                _padded(name),
                style=_CLASS_STYLES.get(name.rstrip("0123456789"), "dim"),
            )
            for name in row
        ]
        for row in class_matrix(graph)
    ]
    return _matrix(graph, "Paths between GPUs", rows)


def _class_legend(graph: MachineGraph) -> "Text":
    from rich.text import Text

    return Text("\n".join(class_words(class_matrix(graph))), style="dim")


def _bandwidth_table(graph: MachineGraph) -> "Table":
    from rich.text import Text

    rates = bandwidth_matrix(graph)
    scale = HeatScale(rate for row in rates for rate in row)

    def cell(i: int, j: int) -> Text:
        if rates[i][j] is None:
            return Text(_padded("–"), style="dim")
        shown = gigabytes(rates[i][j]) + "*" * is_staged(graph, graph.gpus[i], graph.gpus[j])
        colours = f"{scale.ink(rates[i][j])} on {scale.fill(rates[i][j])}"
        return Text(_padded(shown), style=colours)

    count = range(len(rates))
    return _matrix(graph, "GB/s per direction", [[cell(i, j) for j in count] for i in count])


def _matrix(graph: MachineGraph, title: str, rows: list[list["Text"]]) -> "Table":
    """GPU by GPU; ids that are too long for a column's head are numbered there."""
    from rich.table import Table

    table = Table(box=None, padding=0, pad_edge=False, header_style="dim",
                  title=title, title_justify="left", title_style="bold")  # fmt: skip
    table.add_column("", style="dim", no_wrap=True)
    for number, gpu in enumerate(graph.gpus):
        head = gpu if len(gpu) < _CELL else str(number)
        table.add_column(_padded(head), width=_CELL, no_wrap=True)
    for number, (gpu, row) in enumerate(zip(graph.gpus, rows, strict=True)):
        side = gpu if len(gpu) < _CELL else f"{number} {_cut(gpu, 14)}"
        table.add_row(f"{side} ", *row)
    return table


def _padded(content: str) -> str:
    """To the right of a cell, with a space after it that the cell's colour fills."""
    return f"{content:>{_CELL - 1}} "


def _cut(content: str, length: int) -> str:
    content = printable(content)  # a label can't move the cursor
    return content if len(content) <= length else f"{content[: length - 1]}…"
