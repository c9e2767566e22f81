"""Shortens the drawing of a large machine.

Of identical trays, such as those of a rack, only one is drawn. If all pairs of GPUs have the same rate, a
sentence replaces the table.
"""

from collections.abc import Iterator, Sequence

from gpuyard.draw.topology.labels import format_rate
from gpuyard.hardware.graph import GPU_LINKS, Device, MachineGraph
from gpuyard.hardware.pairs import compute_bandwidth_matrix, compute_class_matrix

MAX_GPUS = 16
"""Machines with at most this many GPUs are drawn completely."""

Tray = tuple[Device, ...]


def select_drawn_part(graph: MachineGraph) -> tuple[MachineGraph, list[str]]:
    """Return the part of the machine to draw, and sentences about the parts that are not drawn."""
    trays = _find_trays(graph)
    if len(graph.gpus) <= MAX_GPUS or len(trays) < 2:
        return graph, []
    identical: dict[object, list[Tray]] = {}
    for tray in trays:
        identical.setdefault(_get_signature(graph, tray), []).append(tray)
    kept = {device.id for group in identical.values() for device in group[0]}
    kept |= {switch.id for switch in graph.devices_of_kind("nvswitch")}
    drawn = MachineGraph(
        graph.name,
        tuple(device for device in graph.devices if device.id in kept),
        tuple(wire for wire in graph.wires if {wire.a, wire.b} <= kept),
        graph.pcie_peers,
        graph.notes,
    )
    return drawn, [_describe_group(group) for group in identical.values() if len(group) > 1]


def describe_uniform_rate(graph: MachineGraph) -> str:
    """Return a sentence if a large machine has the same path and rate between all GPUs, otherwise ""."""
    count = len(graph.gpus)
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    rates, classes = compute_bandwidth_matrix(graph), compute_class_matrix(graph)
    distinct = {(rates[i][j], classes[i][j]) for i, j in pairs}
    if count <= MAX_GPUS or len(distinct) > 1:
        return ""
    ((bytes_per_second, path_class),) = distinct
    if bytes_per_second is None:
        return ""
    return f"Every GPU reaches every other at {format_rate(bytes_per_second)} ({path_class})."


def _find_trays(graph: MachineGraph) -> list[Tray]:
    """Return the parts that the host side connects: one for a server, many for an NVLink rack."""
    neighbors: dict[str, list[str]] = {device.id: [] for device in graph.devices}
    for wire in graph.wires:
        if wire.kind not in GPU_LINKS:
            neighbors[wire.a].append(wire.b)
            neighbors[wire.b].append(wire.a)
    visited: set[str] = set()
    trays = []
    for device in graph.devices:
        if device.id in visited or device.kind == "nvswitch":
            continue
        reachable = set(_iter_reachable(device.id, neighbors))
        visited |= reachable
        trays.append(tuple(d for d in graph.devices if d.id in reachable))
    return trays


def _iter_reachable(start: str, neighbors: dict[str, list[str]]) -> Iterator[str]:
    visited, stack = {start}, [start]
    while stack:
        device = stack.pop()
        yield device
        unvisited = [neighbor for neighbor in neighbors[device] if neighbor not in visited]
        visited.update(unvisited)
        stack += unvisited


def _get_signature(graph: MachineGraph, tray: Tray) -> object:
    """Return a value that is equal for trays that differ only in the numbers of their devices."""
    places: dict[str, object] = {device.id: number for number, device in enumerate(tray)}
    devices = [(device.kind, device.label.rstrip("0123456789"), device.gpu) for device in tray]
    wires = [
        (
            places.get(wire.a, wire.a),
            places.get(wire.b, wire.b),
            wire.kind,
            wire.bytes_per_second,
            wire.width,
        )
        for wire in graph.wires
        if wire.a in places or wire.b in places
    ]
    return tuple(devices), tuple(wires)


def _describe_group(trays: Sequence[Tray]) -> str:
    omitted = [device for tray in trays[1:] for device in tray]
    spans = [
        _format_span([device.id for device in omitted if device.kind == kind])
        for kind in ("socket", "gpu")
    ]
    others = " and ".join(span for span in spans if span)
    return f"One of {len(trays)} identical trays is drawn; the others have {others}."


def _format_span(ids: Sequence[str]) -> str:
    return f"{ids[0]}–{ids[-1]}" if len(ids) > 1 else "".join(ids)
