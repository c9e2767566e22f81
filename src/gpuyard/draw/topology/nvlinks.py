"""NVLinks, and links of other makers, as a drawing shows them: added up to bundles, and direct ones as arcs under the row of GPUs, deeper
the farther they reach."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuyard.draw.topology.columns import Box
from gpuyard.hardware.graph import GPU_LINKS, LINK_PREFIX, MachineGraph, Wire, WireKind

_FIRST_DEPTH = 30.0
_DEEPER = 32.0
_DEEPEST = 260.0
_PORT_GAP = 13.0


@dataclass(frozen=True)
class LinkBundle:
    """Links that run side by side, and their rate together."""

    links: int
    bytes_per_second: float
    generation: int | None
    kind: WireKind

    @property
    def name(self) -> str:
        return f"{LINK_PREFIX[self.kind]}{self.links}"


@dataclass(frozen=True)
class Arc:
    """From GPU a to GPU b with so many links; y is the GPUs' lower edge."""

    a: str
    b: str
    x1: float
    x2: float
    y: float
    depth: float
    bundle: LinkBundle


def bundle(wires: Iterable[Wire]) -> LinkBundle:
    found = list(wires)
    return LinkBundle(
        sum(wire.width for wire in found),
        sum(wire.bytes_per_second for wire in found),
        found[0].generation,
        found[0].kind,
    )


def switched_bundles(graph: MachineGraph) -> dict[str, LinkBundle]:
    """GPU → its links to all NVSwitches; GPUs without any are left out."""
    switches = {switch.id for switch in graph.of_kind("nvswitch")}
    wires: dict[str, list[Wire]] = {gpu: [] for gpu in graph.gpus}
    for wire in graph.wires:
        if wire.kind in GPU_LINKS:
            for gpu in (wire.a, wire.b):
                if gpu in wires and wire.other(gpu) in switches:
                    wires[gpu].append(wire)
    return {gpu: bundle(found) for gpu, found in wires.items() if found}


def direct_bundles(graph: MachineGraph) -> dict[frozenset[str], LinkBundle]:
    """Pair of GPUs → the links between them."""
    gpus = set(graph.gpus)
    wires: dict[frozenset[str], list[Wire]] = {}
    for wire in graph.wires:
        if wire.kind in GPU_LINKS and {wire.a, wire.b} <= gpus:
            wires.setdefault(frozenset((wire.a, wire.b)), []).append(wire)
    return {pair: bundle(found) for pair, found in wires.items()}


def host_wires(graph: MachineGraph) -> list[Wire]:
    """NVLink between a GPU and its host, as POWER9 and Grace have it."""
    return [
        wire
        for wire in graph.wires
        if wire.kind in GPU_LINKS
        and not {graph.device(end).kind for end in (wire.a, wire.b)} <= {"gpu", "nvswitch"}
    ]


def nvlink_arcs(graph: MachineGraph, boxes: Mapping[str, Box]) -> tuple[Arc, ...]:
    """One arc a pair of GPUs, its ends spread along the boxes so that nested arcs don't cross."""
    row = sorted(graph.gpus, key=lambda gpu: boxes[gpu].x)
    place = {gpu: number for number, gpu in enumerate(row)}
    pairs: dict[tuple[str, str], LinkBundle] = {}
    for pair, bundle in direct_bundles(graph).items():
        a, b = sorted(pair, key=place.__getitem__)
        pairs[a, b] = bundle
    spans = sorted({place[b] - place[a] for a, b in pairs})
    ports = _ports(pairs, place, boxes)
    step = min(_DEEPER, (_DEEPEST - _FIRST_DEPTH) / max(len(spans) - 1, 1))
    return tuple(
        Arc(a, b, ports[a, b], ports[b, a], boxes[a].bottom,
            _FIRST_DEPTH + step * spans.index(place[b] - place[a]), bundle)
        for (a, b), bundle in pairs.items()
    )  # fmt: skip


def _ports(
    pairs: Mapping[tuple[str, str], object], place: dict[str, int], boxes: Mapping[str, Box]
) -> dict[tuple[str, str], float]:
    """(gpu, peer) → x. To the left short before long, then to the right long before short."""
    ports: dict[tuple[str, str], float] = {}
    for gpu, here in place.items():
        peers = [b if a == gpu else a for a, b in pairs if gpu in (a, b)]
        left = sorted((p for p in peers if place[p] < here), key=lambda p: -place[p])
        right = sorted((p for p in peers if place[p] > here), key=lambda p: -place[p])
        gap = min(_PORT_GAP, (boxes[gpu].width - 16) / max(len(peers) - 1, 1))
        for number, peer in enumerate([*left, *right]):
            ports[gpu, peer] = boxes[gpu].middle + gap * (number - (len(peers) - 1) / 2)
    return ports
