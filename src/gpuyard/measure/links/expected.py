"""Calculates the expected rate of a link from the machine graph."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from gpuyard.catalog import gpus
from gpuyard.hardware.graph import Hop, MachineGraph, Wire
from gpuyard.hardware.rings import STAGED_BOTH_WAYS_SHARE, STAGED_SHARE
from gpuyard.measure.links.records import HostFacts, PlannedLink


def build_rated_machine(graph: MachineGraph, facts: HostFacts) -> MachineGraph:
    """Return the machine at its rated width, with all lanes, all NVLinks to switches, and peer access.

    A discovered graph has only the lanes that currently work, so it would hide a loose card.
    """
    lanes = {slot.gpu: slot.max_width for slot in facts.slots}
    peers = graph.pcie_peers
    return replace(
        graph,
        wires=tuple(_widen_wire(graph, wire, lanes) for wire in graph.wires),
        pcie_peers=None if peers is None else peers | _find_rated_peers(graph),
    )


def expected_bytes_per_second(graph: MachineGraph, link: PlannedLink) -> float | None:
    """Return the rate of a link, the sum of both directions if they run at once.

    It is None if the graph does not contain the link.
    """
    if link.kind not in ("host-gpu", "gpu-gpu"):
        return None
    if not {link.source, link.target} <= {"host", *graph.gpus}:
        return None
    paths = [_find_path(graph, link.source, link.target, peer=link.peer)]
    if link.direction == "both-ways":
        paths.append(_find_path(graph, link.target, link.source, peer=link.peer))
    if not all(paths):
        return None
    loads = Counter((id(hop.wire), hop.source) for path in paths for hop in path)
    return _get_staged_share(link) * sum(
        min(hop.wire.bytes_per_second / loads[id(hop.wire), hop.source] for hop in path)
        for path in paths
    )


def _get_staged_share(link: PlannedLink) -> float:
    if link.peer is not False:
        return 1.0
    return STAGED_BOTH_WAYS_SHARE if link.direction == "both-ways" else STAGED_SHARE


def find_peer_pairs(graph: MachineGraph) -> frozenset[frozenset[str]]:
    """Return the pairs of GPUs that should have access to each other's memory."""
    return frozenset(
        frozenset((a, b)) for a, b in combinations(graph.gpus, 2) if graph.has_peer_access(a, b)
    )


def uses_nvlink(graph: MachineGraph, link: PlannedLink) -> bool:
    """Return whether this traffic uses NVLink."""
    return (
        link.peer is True
        and {link.source, link.target} <= set(graph.gpus)
        and graph.gpu_links(link.source, link.target) > 0
    )


def _widen_wire(graph: MachineGraph, wire: Wire, lanes: dict[str, int | None]) -> Wire:
    ends = {graph.device(end).kind: graph.device(end) for end in (wire.a, wire.b)}
    gpu = ends.get("gpu")
    if gpu is None:
        return wire
    if wire.kind == "pcie":
        width = lanes.get(gpu.id)
    elif "nvswitch" in ends and gpu.gpu is not None:
        width = gpus().get(gpu.gpu).nvlink_links
    else:  # the number of NVLinks between two GPUs depends on the board
        width = None
    if not width or width <= wire.width:
        return wire
    return replace(wire, width=width, bytes_per_second=wire.bytes_per_second * width / wire.width)


def _find_rated_peers(graph: MachineGraph) -> frozenset[frozenset[str]]:
    """Return the pairs below one socket whose GPUs support PCIe peer access.

    Many chipsets do not support it between sockets, so the discovered pairs count there.
    """
    capable = [
        device.id
        for device in graph.devices_of_kind("gpu")
        if device.gpu is not None and gpus().get(device.gpu).pcie_peer_to_peer
    ]
    return frozenset(
        frozenset((a, b))
        for a, b in combinations(capable, 2)
        if _find_path(graph, a, b, peer=True) and graph.pcie_class(a, b) != "SYS"
    )


def _find_path(graph: MachineGraph, a: str, b: str, *, peer: bool | None) -> tuple[Hop, ...]:
    try:
        if a == "host":
            return graph.path(graph.find_socket(b), b)
        if b == "host":
            return graph.path(a, graph.find_socket(a))
        if peer:
            return graph.path(a, b)
        # links between sockets don't limit staged copies (gpuyard.hardware.rings)
        return tuple(hop for hop in graph.staged_path(a, b) if hop.wire.kind != "socket")
    except ValueError:  # not connected: the machine was only partly discovered
        return ()
