"""Arranges the host side of a machine as trees of CPUs, switches, and devices."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.hardware.graph import Device, MachineGraph, Wire


@dataclass(frozen=True)
class Branch:
    """A device, the wire to its parent, and its children in the order of their first GPUs."""

    device: Device
    wire: Wire | None
    children: tuple["Branch", ...]

    def walk(self) -> Iterator["Branch"]:
        yield self
        for child in self.children:
            yield from child.walk()


def build_host_trees(graph: MachineGraph) -> tuple[Branch, ...]:
    """Return one tree per socket, and one per device that no socket reaches."""
    parents = _find_parents(graph)
    order = {device.id: number for number, device in enumerate(graph.devices)}
    first_gpu = {gpu: number for number, gpu in enumerate(graph.gpus)}

    def branch(device: Device, wire: Wire | None) -> Branch:
        children = [
            branch(graph.device(child), up)
            for child, up in parents.items()
            if up is not None and up.other_end(child) == device.id
        ]
        return Branch(device, wire, tuple(sorted(children, key=rank)))

    def rank(child: Branch) -> tuple[int, int]:
        gpus = [first_gpu[b.device.id] for b in child.walk() if b.device.id in first_gpu]
        return min(gpus, default=len(first_gpu)), order[child.device.id]

    return tuple(branch(graph.device(id), None) for id, up in parents.items() if up is None)


def find_other_wires(graph: MachineGraph, trees: tuple[Branch, ...]) -> tuple[Wire, ...]:
    """Return the host wires outside the trees, such as the second uplink of a NIC."""
    drawn = {id(branch.wire) for tree in trees for branch in tree.walk()}
    return tuple(w for w in graph.wires if w.kind in ("pcie", "internal") and id(w) not in drawn)


def _find_parents(graph: MachineGraph) -> dict[str, Wire | None]:
    """Map every device except NVSwitches to the wire to its parent, or to None for a root."""
    parents: dict[str, Wire | None] = {}
    ordered = sorted(graph.devices, key=lambda d: ("socket", "host-bridge", "switch").index(d.kind)
                  if d.kind in ("socket", "host-bridge", "switch") else 3)  # fmt: skip
    _add_reachable(graph, parents, [socket.id for socket in graph.devices_of_kind("socket")])
    for device in ordered:
        if device.id not in parents and device.kind != "nvswitch":
            _add_reachable(graph, parents, [device.id])
    return parents


def _add_reachable(graph: MachineGraph, parents: dict[str, Wire | None], roots: list[str]) -> None:
    """Search breadth-first from the roots, so that each device gets its nearest parent."""
    parents.update(dict.fromkeys(roots))
    queue = deque(roots)
    while queue:
        device = queue.popleft()
        for wire in graph.wires:
            if wire.kind in ("pcie", "internal") and device in (wire.a, wire.b):
                neighbor = wire.other_end(device)
                if neighbor not in parents:
                    parents[neighbor] = wire
                    queue.append(neighbor)
