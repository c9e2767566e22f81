"""Prepares NVLinks and other GPU links for drawing.

Parallel links are added up to bundles. Direct links become arcs under the row of GPUs; longer arcs are deeper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.draw.topology.columns import Box
from gpuyard.hardware.graph import GPU_LINKS, LINK_PREFIX, MachineGraph, Wire, WireKind

_FIRST_DEPTH = 30.0
_DEPTH_STEP = 32.0
_MAX_DEPTH = 260.0
_PORT_GAP = 13.0


@dataclass(frozen=True)
class LinkBundle:
    """Parallel links and their combined rate."""

    links: int
    bytes_per_second: float
    generation: int | None
    kind: WireKind

    @property
    def name(self) -> str:
        return f"{LINK_PREFIX[self.kind]}{self.links}"


@dataclass(frozen=True)
class Arc:
    """An arc from GPU a to GPU b; y is the lower edge of the GPUs."""

    a: str
    b: str
    x1: float
    x2: float
    y: float
    depth: float
    bundle: LinkBundle


def bundle_wires(wires: Sequence[Wire]) -> LinkBundle:
    return LinkBundle(
        sum(wire.width for wire in wires),
        sum(wire.bytes_per_second for wire in wires),
        wires[0].generation,
        wires[0].kind,
    )


def bundle_switch_links(graph: MachineGraph) -> dict[str, LinkBundle]:
    """Map each GPU that has links to NVSwitches to the bundle of all these links."""
    switches = {switch.id for switch in graph.devices_of_kind("nvswitch")}
    wires_by_gpu: dict[str, list[Wire]] = {gpu: [] for gpu in graph.gpus}
    for wire in graph.wires:
        if wire.kind in GPU_LINKS:
            for gpu in (wire.a, wire.b):
                if gpu in wires_by_gpu and wire.other_end(gpu) in switches:
                    wires_by_gpu[gpu].append(wire)
    return {gpu: bundle_wires(wires) for gpu, wires in wires_by_gpu.items() if wires}


def bundle_direct_links(graph: MachineGraph) -> dict[frozenset[str], LinkBundle]:
    """Map each pair of directly connected GPUs to the bundle of links between them."""
    gpus = set(graph.gpus)
    wires_by_pair: dict[frozenset[str], list[Wire]] = {}
    for wire in graph.wires:
        if wire.kind in GPU_LINKS and {wire.a, wire.b} <= gpus:
            wires_by_pair.setdefault(frozenset((wire.a, wire.b)), []).append(wire)
    return {pair: bundle_wires(wires) for pair, wires in wires_by_pair.items()}


def find_host_nvlinks(graph: MachineGraph) -> list[Wire]:
    """Return the NVLinks between GPUs and CPUs, which POWER9 and Grace machines have."""
    return [
        wire
        for wire in graph.wires
        if wire.kind in GPU_LINKS
        and not {graph.device(end).kind for end in (wire.a, wire.b)} <= {"gpu", "nvswitch"}
    ]


def place_arcs(graph: MachineGraph, boxes: Mapping[str, Box]) -> tuple[Arc, ...]:
    """Place one arc per pair of GPUs; its ends are spread along the boxes so that nested arcs don't cross."""
    row = sorted(graph.gpus, key=lambda gpu: boxes[gpu].x)
    positions = {gpu: number for number, gpu in enumerate(row)}
    pairs: dict[tuple[str, str], LinkBundle] = {}
    for pair, bundle in bundle_direct_links(graph).items():
        a, b = sorted(pair, key=positions.__getitem__)
        pairs[a, b] = bundle
    spans = sorted({positions[b] - positions[a] for a, b in pairs})
    ports = _place_ports(pairs, positions, boxes)
    step = min(_DEPTH_STEP, (_MAX_DEPTH - _FIRST_DEPTH) / max(len(spans) - 1, 1))
    return tuple(
        Arc(a, b, ports[a, b], ports[b, a], boxes[a].bottom,
            _FIRST_DEPTH + step * spans.index(positions[b] - positions[a]), bundle)
        for (a, b), bundle in pairs.items()
    )  # fmt: skip


def _place_ports(
    pairs: Mapping[tuple[str, str], object], positions: dict[str, int], boxes: Mapping[str, Box]
) -> dict[tuple[str, str], float]:
    """Map (gpu, peer) to the x at which their arc ends.

    From left to right: peers on the left, nearest first, then peers on the right, farthest first.
    """
    ports: dict[tuple[str, str], float] = {}
    for gpu, position in positions.items():
        peers = [b if a == gpu else a for a, b in pairs if gpu in (a, b)]
        left = sorted((p for p in peers if positions[p] < position), key=lambda p: -positions[p])
        right = sorted((p for p in peers if positions[p] > position), key=lambda p: -positions[p])
        gap = min(_PORT_GAP, (boxes[gpu].width - 16) / max(len(peers) - 1, 1))
        for number, peer in enumerate([*left, *right]):
            ports[gpu, peer] = boxes[gpu].middle + gap * (number - (len(peers) - 1) / 2)
    return ports
