"""A machine that is too big to draw whole: of parts that are alike, as the trays of a rack are, one is drawn, and
where all GPUs reach each other alike, a sentence stands for the table."""

from collections.abc import Iterator, Sequence

from gpuyard.draw.topology.words import rate
from gpuyard.hardware.graph import GPU_LINKS, Device, MachineGraph
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix

MOST_GPUS = 16
"""Up to so many, everything is drawn."""

Tray = tuple[Device, ...]


def drawn_part(graph: MachineGraph) -> tuple[MachineGraph, list[str]]:
    """What is drawn of a machine, and in sentences what that stands for; a machine of few GPUs whole."""
    trays = _trays(graph)
    if len(graph.gpus) <= MOST_GPUS or len(trays) < 2:
        return graph, []
    alike: dict[object, list[Tray]] = {}
    for tray in trays:
        alike.setdefault(_look(graph, tray), []).append(tray)
    kept = {device.id for found in alike.values() for device in found[0]}
    kept |= {switch.id for switch in graph.of_kind("nvswitch")}
    shown = MachineGraph(
        graph.name,
        tuple(device for device in graph.devices if device.id in kept),
        tuple(wire for wire in graph.wires if {wire.a, wire.b} <= kept),
        graph.pcie_peers,
        graph.notes,
    )
    return shown, [_stands_for(found) for found in alike.values() if len(found) > 1]


def one_rate(graph: MachineGraph) -> str:
    """A sentence where many GPUs all reach each other alike, else nothing."""
    count = len(graph.gpus)
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    rates, classes = bandwidth_matrix(graph), class_matrix(graph)
    found = {(rates[i][j], classes[i][j]) for i, j in pairs}
    if count <= MOST_GPUS or len(found) > 1:
        return ""
    ((bytes_per_second, path_class),) = found
    if bytes_per_second is None:
        return ""
    return f"Every GPU reaches every other at {rate(bytes_per_second)} ({path_class})."


def _trays(graph: MachineGraph) -> list[Tray]:
    """What the host side joins: one tray in a server, many in a rack whose GPUs only NVLink joins."""
    near: dict[str, list[str]] = {device.id: [] for device in graph.devices}
    for wire in graph.wires:
        if wire.kind not in GPU_LINKS:
            near[wire.a].append(wire.b)
            near[wire.b].append(wire.a)
    seen: set[str] = set()
    found = []
    for device in graph.devices:
        if device.id in seen or device.kind == "nvswitch":
            continue
        reached = set(_reached(device.id, near))
        seen |= reached
        found.append(tuple(d for d in graph.devices if d.id in reached))
    return found


def _reached(start: str, near: dict[str, list[str]]) -> Iterator[str]:
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        yield here
        fresh = [there for there in near[here] if there not in seen]
        seen.update(fresh)
        waiting += fresh


def _look(graph: MachineGraph, tray: Tray) -> object:
    """The same for trays that differ in nothing but the numbers of their devices."""
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


def _stands_for(trays: Sequence[Tray]) -> str:
    rest = [device for tray in trays[1:] for device in tray]
    names = [
        _span([device.id for device in rest if device.kind == kind]) for kind in ("socket", "gpu")
    ]
    others = " and ".join(name for name in names if name)
    return f"One of {len(trays)} identical trays is drawn; the others have {others}."


def _span(ids: Sequence[str]) -> str:
    return f"{ids[0]}–{ids[-1]}" if len(ids) > 1 else "".join(ids)
