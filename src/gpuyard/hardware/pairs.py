"""Matrices of all GPU pairs of a machine: bandwidth, latency, and path class. Rows are senders."""

from gpuyard.hardware.graph import GPU_LINKS, NOT_CONNECTED, Hop, MachineGraph
from gpuyard.hardware.rings import STAGED_SHARE


def compute_bandwidth_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Return the bytes per second of each transfer on an idle machine; None on the diagonal and without a path."""
    return [[_bytes_per_second(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def compute_latency_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Return the latency of each path in seconds; None on the diagonal and without a path."""
    return [[_latency_seconds(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def compute_class_matrix(graph: MachineGraph) -> list[list[str]]:
    """Return the path classes, as `nvidia-smi topo -m` prints them."""
    return [[_path_class(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def is_staged(graph: MachineGraph, a: str, b: str) -> bool:
    """Return whether a message from a to b goes through host memory."""
    return a != b and not graph.has_peer_access(a, b)


def _bytes_per_second(graph: MachineGraph, a: str, b: str) -> float | None:
    share = STAGED_SHARE if is_staged(graph, a, b) else 1.0
    rates = [
        share * _hop_rate(graph, hop, a, b)
        for hop in _hops(graph, a, b)
        if share == 1 or hop.wire.kind != "socket"
    ]
    return min(rates, default=None)


def _hop_rate(graph: MachineGraph, hop: Hop, a: str, b: str) -> float:
    """Return the rate of a hop; on GPU links, traffic uses all links of the pair, although a path names one switch."""
    if hop.wire.kind not in GPU_LINKS:
        return hop.wire.bytes_per_second
    return hop.wire.bytes_per_second / hop.wire.width * graph.gpu_links(a, b)


def _latency_seconds(graph: MachineGraph, a: str, b: str) -> float | None:
    hops = _hops(graph, a, b)
    return sum(hop.wire.latency_seconds for hop in hops) if hops else None


def _path_class(graph: MachineGraph, a: str, b: str) -> str:
    return graph.path_class(a, b) if a == b or _hops(graph, a, b) else NOT_CONNECTED


def _hops(graph: MachineGraph, a: str, b: str) -> tuple[Hop, ...]:
    if a == b:
        return ()
    try:
        return graph.transfer_path(a, b)
    except ValueError:  # no path, e.g. on a machine that was only partly discovered
        return ()
