"""What the machine graph says a link should carry. Pure."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from gpuyard.catalog import gpus
from gpuyard.hardware.graph import Hop, MachineGraph, Wire
from gpuyard.hardware.rings import STAGED_BOTH_WAYS_SHARE, STAGED_SHARE
from gpuyard.measure.links.records import HostFacts, PlannedLink


def rated_machine(graph: MachineGraph, facts: HostFacts) -> MachineGraph:
    """The machine with all lanes of its GPUs, all NVLinks to its switches and the peer access that its
    GPUs are sold with; a discovered graph has what it found working, which would excuse a loose card."""
    lanes = {slot.gpu: slot.most_width for slot in facts.slots}
    found = graph.pcie_peers
    return replace(
        graph,
        wires=tuple(_whole(graph, wire, lanes) for wire in graph.wires),
        pcie_peers=None if found is None else found | _sold_with_peer_access(graph),
    )


def expected_bytes_per_second(graph: MachineGraph, link: PlannedLink) -> float | None:
    """Both directions together where both run at once; None for what the graph does not know."""
    if link.kind not in ("host-gpu", "gpu-gpu"):
        return None
    if not {link.source, link.target} <= {"host", *graph.gpus}:
        return None
    ways = [_path(graph, link.source, link.target, peer=link.peer)]
    if link.direction == "both-ways":
        ways.append(_path(graph, link.target, link.source, peer=link.peer))
    if not all(ways):
        return None
    loads = Counter((id(hop.wire), hop.source) for way in ways for hop in way)
    return _staged_share(link) * sum(
        min(hop.wire.bytes_per_second / loads[id(hop.wire), hop.source] for hop in way)
        for way in ways
    )


def _staged_share(link: PlannedLink) -> float:
    if link.peer is not False:
        return 1.0
    return STAGED_BOTH_WAYS_SHARE if link.direction == "both-ways" else STAGED_SHARE


def peers_of(graph: MachineGraph) -> frozenset[frozenset[str]]:
    """Pairs of GPUs that should reach each other's memory."""
    return frozenset(
        frozenset((a, b)) for a, b in combinations(graph.gpus, 2) if graph.offers_peer_to_peer(a, b)
    )


def over_nvlink(graph: MachineGraph, link: PlannedLink) -> bool:
    """Whether this traffic takes NVLink."""
    return (
        link.peer is True
        and {link.source, link.target} <= set(graph.gpus)
        and graph.gpu_links(link.source, link.target) > 0
    )


def _whole(graph: MachineGraph, wire: Wire, lanes: dict[str, int | None]) -> Wire:
    ends = {graph.device(end).kind: graph.device(end) for end in (wire.a, wire.b)}
    gpu = ends.get("gpu")
    if gpu is None:
        return wire
    if wire.kind == "pcie":
        width = lanes.get(gpu.id)
    elif "nvswitch" in ends and gpu.gpu is not None:
        width = gpus().get(gpu.gpu).nvlink_links
    else:  # how many NVLinks two GPUs share is the layout's choice
        width = None
    if not width or width <= wire.width:
        return wire
    return replace(wire, width=width, bytes_per_second=wire.bytes_per_second * width / wire.width)


def _sold_with_peer_access(graph: MachineGraph) -> frozenset[frozenset[str]]:
    """Between sockets many chipsets don't offer it, so there what was found stands."""
    able = [
        device.id
        for device in graph.of_kind("gpu")
        if device.gpu is not None and gpus().get(device.gpu).pcie_peer_to_peer
    ]
    return frozenset(
        frozenset((a, b))
        for a, b in combinations(able, 2)
        if _path(graph, a, b, peer=True) and graph.pcie_class(a, b) != "SYS"
    )


def _path(graph: MachineGraph, a: str, b: str, *, peer: bool | None) -> tuple[Hop, ...]:
    try:
        if a == "host":
            return graph.path(graph.socket_of(b), b)
        if b == "host":
            return graph.path(a, graph.socket_of(a))
        return graph.path(a, b) if peer else graph.staged_path(a, b)
    except ValueError:  # nothing joins them: a machine that was only partly discovered
        return ()
