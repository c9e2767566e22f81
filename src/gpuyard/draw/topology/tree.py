"""The host side of a machine as trees: sockets with what hangs under them."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.hardware.graph import Device, MachineGraph, Wire


@dataclass(frozen=True)
class Branch:
    """A device, the wire to its parent, and its children, those with the first GPUs first."""

    device: Device
    wire: Wire | None
    children: tuple["Branch", ...]

    def walk(self) -> Iterator["Branch"]:
        yield self
        for child in self.children:
            yield from child.walk()


def host_trees(graph: MachineGraph) -> tuple[Branch, ...]:
    """One tree a socket; what no socket reaches stands as a tree of its own."""
    parents = _parents(graph)
    order = {device.id: number for number, device in enumerate(graph.devices)}
    first_gpu = {gpu: number for number, gpu in enumerate(graph.gpus)}

    def branch(device: Device, wire: Wire | None) -> Branch:
        children = [
            branch(graph.device(child), up)
            for child, up in parents.items()
            if up is not None and up.other(child) == device.id
        ]
        return Branch(device, wire, tuple(sorted(children, key=rank)))

    def rank(found: Branch) -> tuple[int, int]:
        gpus = [first_gpu[b.device.id] for b in found.walk() if b.device.id in first_gpu]
        return min(gpus, default=len(first_gpu)), order[found.device.id]

    return tuple(branch(graph.device(id), None) for id, up in parents.items() if up is None)


def other_wires(graph: MachineGraph, trees: tuple[Branch, ...]) -> tuple[Wire, ...]:
    """Wires of the host that close a loop, such as a NIC's second one."""
    drawn = {id(branch.wire) for tree in trees for branch in tree.walk()}
    return tuple(w for w in graph.wires if w.kind in ("pcie", "internal") and id(w) not in drawn)


def _parents(graph: MachineGraph) -> dict[str, Wire | None]:
    """Every device but NVSwitches with the wire that leads up, nearest parent first."""
    up: dict[str, Wire | None] = {}
    rest = sorted(graph.devices, key=lambda d: ("socket", "host-bridge", "switch").index(d.kind)
                  if d.kind in ("socket", "host-bridge", "switch") else 3)  # fmt: skip
    _spread(graph, up, [socket.id for socket in graph.of_kind("socket")])
    for device in rest:
        if device.id not in up and device.kind != "nvswitch":
            _spread(graph, up, [device.id])
    return up


def _spread(graph: MachineGraph, up: dict[str, Wire | None], roots: list[str]) -> None:
    up.update(dict.fromkeys(roots))
    waiting = deque(roots)
    while waiting:
        here = waiting.popleft()
        for wire in graph.wires:
            if wire.kind in ("pcie", "internal") and here in (wire.a, wire.b):
                there = wire.other(here)
                if there not in up:
                    up[there] = wire
                    waiting.append(there)
