"""What every GPU of a machine reaches of every other one, a pair at a time: rate, latency and class of the path. Rows
send."""

from gpuyard.hardware.graph import GPU_LINKS, NOT_JOINED, Hop, MachineGraph
from gpuyard.hardware.rings import STAGED_SHARE


def bandwidth_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Bytes per second of a transfer that has the machine to itself; None on the diagonal and where
    nothing joins a pair."""
    return [[_bytes_per_second(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def latency_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Seconds along the path; None on the diagonal and where nothing joins a pair."""
    return [[_latency_seconds(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def class_matrix(graph: MachineGraph) -> list[list[str]]:
    """NVIDIA's classes, as `nvidia-smi topo -m` prints them."""
    return [[_class(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def is_staged(graph: MachineGraph, a: str, b: str) -> bool:
    """Whether a message from a to b goes through host memory."""
    return a != b and not graph.offers_peer_to_peer(a, b)


def _bytes_per_second(graph: MachineGraph, a: str, b: str) -> float | None:
    share = STAGED_SHARE if is_staged(graph, a, b) else 1.0
    rates = [share * _hop_rate(graph, hop, a, b) for hop in _hops(graph, a, b)]
    return min(rates, default=None)


def _hop_rate(graph: MachineGraph, hop: Hop, a: str, b: str) -> float:
    """Of NVLink all links that the pair has: a path names one NVSwitch, traffic spreads over all."""
    if hop.wire.kind not in GPU_LINKS:
        return hop.wire.bytes_per_second
    return hop.wire.bytes_per_second / hop.wire.width * graph.gpu_links(a, b)


def _latency_seconds(graph: MachineGraph, a: str, b: str) -> float | None:
    hops = _hops(graph, a, b)
    return sum(hop.wire.latency_seconds for hop in hops) if hops else None


def _class(graph: MachineGraph, a: str, b: str) -> str:
    return graph.path_class(a, b) if a == b or _hops(graph, a, b) else NOT_JOINED


def _hops(graph: MachineGraph, a: str, b: str) -> tuple[Hop, ...]:
    if a == b:
        return ()
    try:
        return graph.transfer_path(a, b)
    except ValueError:  # nothing joins them: a machine that was only partly discovered
        return ()
