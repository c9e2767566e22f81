"""The all-reduce bandwidth of a machine's GPUs: rings through the GPUs, where rings on the same wire share its rate.

Rates are NCCL's bus bandwidth: the rate of the slowest hop for one ring, and the sum for several rings.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from math import inf

from gpuyard.catalog import links
from gpuyard.errors import UserMistake
from gpuyard.hardware.graph import GPU_LINKS, NOT_CONNECTED, Hop, MachineGraph
from gpuyard.hardware.ring_search import Ring, find_detoured_ring, pack_rings

# Without peer access, every message is copied to host memory and from there to the other GPU. These are the shares
# of the slowest PCIe wire that such copies reach: medians of `gpuyard catalog staged-copies`. Wires between sockets
# don't limit them: there, copies of 35 GB/s were measured over two sockets and 24 within one (NVIDIA/nccl issue 1130).
STAGED_SHARE = 0.85  # in one direction
STAGED_BOTH_WAYS_SHARE = 0.48  # in each direction, if both GPUs send and receive at once
# the share of their rate that all direct links of a board reach at once: of 7 × 48 GB/s per MI300X, RCCL reached 313
# (stas00/ml-engineering network/README.md @744d01e)
MESH_SHARE = 0.93
_MAX_PERMUTED_GPUS = 6  # up to here all orders of a ring are tried: at most 120
MAX_EXACT_GPUS = 16


@dataclass(frozen=True)
class AllReduce:
    """The all-reduce over some GPUs: its rings, their combined rate on the wires, and the limiting wire.

    If it is staged, training reaches less than this rate; see `predictor.transport.ring_rate`. Other collectives than an
    all-reduce have the rate of the rings.
    """

    gpus: tuple[str, ...]
    rings: tuple[Ring, ...]
    bytes_per_second: float
    latency_seconds: float  # of the slowest hop
    kind: str  # of the limiting wire: "nvlink", "fabric", "pcie", or "socket"
    staged: bool  # whether any hop goes through host memory
    switch_gain: float = 1.0  # relative to the rings, if NVSwitches add up the numbers
    memory_bytes_per_second: float = inf  # of the host, for one of the messages that it stages


def sum_ring_rates(graph: MachineGraph, rings: Sequence[Ring]) -> float:
    """Return the combined rate of rings that run at once."""
    return sum(compute_ring_rates(graph, rings))


def compute_ring_rates(graph: MachineGraph, rings: Sequence[Ring]) -> list[float]:
    """Return the rate of each ring while all run: the hops that cross a wire in one direction share it evenly."""
    loads: Counter[tuple[int, str]] = Counter()
    hops_by_ring: list[list[tuple[Hop, float]]] = []
    for ring in rings:
        hops = [(hop, share) for a, b in _pairs(ring) for hop, share in _hops(graph, a, b)]
        hops_by_ring.append(hops)
        loads.update((id(hop.wire), hop.source) for hop, _ in hops)
    return [
        min(
            share * hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
            for hop, share in hops
        )
        for hops in hops_by_ring
    ]


def _share_memory(graph: MachineGraph, gpus: Sequence[str]) -> float:
    """Return the memory rate for one of the staged messages of these GPUs.

    All messages share the host's memory, but few of them don't fill it. A second socket adds 46% in one thread
    (NVIDIA/nccl issue 1130) and nothing in published training. These exponents fit published tables of 2 to 10 GPUs.
    """
    sockets = {graph.find_socket(gpu) for gpu in gpus}
    return float(
        graph.socket_memory_bytes_per_second * min(len(sockets), 2) ** 0.125 / len(gpus) ** 0.75
    )


def estimate_all_reduce(graph: MachineGraph, gpus: Sequence[str]) -> AllReduce:
    """Find the best rings through these GPUs: over NVLink if its links close a ring, otherwise over PCIe."""
    if len(set(gpus)) != len(gpus) or not gpus:
        raise UserMistake(f"an all-reduce needs distinct GPUs, got {', '.join(gpus) or 'none'}")
    # in the machine's order, so that the result does not depend on the order of the argument
    ordered = tuple(sorted((graph.device(gpu).id for gpu in gpus), key=graph.gpus.index))
    if len(ordered) == 1:
        return AllReduce(ordered, (), float("inf"), 0.0, "none", False)
    return _estimate_cached(graph, ordered)


@lru_cache(maxsize=4096)
def _estimate_cached(graph: MachineGraph, gpus: tuple[str, ...]) -> AllReduce:
    rings = _find_nvlink_rings(graph, gpus) or (_find_pcie_ring(graph, gpus),)
    # wires work in both directions, so each NVLink ring runs both ways at once;
    # on a PCIe tree, one ring already loads both directions of the wires
    hops = [
        (hop, share) for ring in rings for a, b in _pairs(ring) for hop, share in _hops(graph, a, b)
    ]
    limiting = min(hops, key=lambda h: h[1] * h[0].wire.bytes_per_second)[0].wire
    if all(hop.wire.kind in GPU_LINKS for hop, _ in hops):
        rate = _compute_nvlink_rate(graph, gpus, rings)
    else:
        rate = sum_ring_rates(graph, rings)
    gain = _compute_switch_gain(graph, gpus, rings, rate)
    latency = max(
        sum(hop.wire.latency_seconds for hop in graph.transfer_path(a, b))
        for ring in rings
        for a, b in _pairs(ring)
    )
    staged = any(share < 1 for _, share in hops)
    memory = _share_memory(graph, gpus) if staged else inf
    return AllReduce(gpus, rings, gain * rate, latency, limiting.kind, staged, gain, memory)


Rate = Callable[[AllReduce], float]


def wire_rate(reduce: AllReduce) -> float:
    return reduce.bytes_per_second


def find_best_gpus(
    graph: MachineGraph, count: int, free: Sequence[str] | None = None, rate: Rate = wire_rate
) -> AllReduce:
    """Find the free GPUs with the fastest all-reduce by trying all choices; ties go to the lowest numbers."""
    return _find_extreme(graph, count, free, rate, fastest=True)


def find_worst_gpus(
    graph: MachineGraph, count: int, free: Sequence[str] | None = None, rate: Rate = wire_rate
) -> AllReduce:
    """Find the free GPUs with the slowest all-reduce: the choice to avoid."""
    return _find_extreme(graph, count, free, rate, fastest=False)


def plan_concurrent_jobs(
    graph: MachineGraph, gpus_each: int, jobs: int, rate: Rate = wire_rate
) -> tuple[AllReduce, ...]:
    """Give each job the best remaining GPUs, and return the rates while all jobs exchange data at once.

    An NVLink connects two GPUs of one job and is never shared; PCIe switches and their uplinks are.
    """
    if jobs * gpus_each > len(graph.gpus):
        raise UserMistake(
            f"{jobs} jobs of {gpus_each} GPUs need {jobs * gpus_each}; "
            f"{graph.name} has {len(graph.gpus)}"
        )
    free = list(graph.gpus)
    reduces: list[AllReduce] = []
    for _ in range(jobs):
        if len(graph.gpus) <= MAX_EXACT_GPUS:
            reduce = find_best_gpus(graph, gpus_each, free, rate)
        else:
            reduce = estimate_all_reduce(graph, free[:gpus_each])
        reduces.append(reduce)
        free = [gpu for gpu in free if gpu not in reduce.gpus]
    over_pcie = [reduce for reduce in reduces if reduce.kind not in (*GPU_LINKS, "none")]
    rates = iter(compute_ring_rates(graph, [reduce.rings[0] for reduce in over_pcie]))
    staged = [gpu for reduce in over_pcie if reduce.staged for gpu in reduce.gpus]
    memory = _share_memory(graph, staged) if staged else inf
    return tuple(
        replace(
            reduce,
            bytes_per_second=next(rates),
            memory_bytes_per_second=memory if reduce.staged else inf,
        )
        if reduce in over_pcie
        else reduce
        for reduce in reduces
    )


def _find_extreme(
    graph: MachineGraph, count: int, free: Sequence[str] | None, rate: Rate, *, fastest: bool
) -> AllReduce:
    candidates = graph.gpus if free is None else tuple(graph.device(gpu).id for gpu in free)
    if not 1 <= count <= len(candidates):
        raise UserMistake(
            f"{count} GPUs were requested; {len(candidates)} are free on {graph.name}"
        )
    if len(candidates) > MAX_EXACT_GPUS:
        raise UserMistake(
            f"the search for the best GPUs supports up to {MAX_EXACT_GPUS} GPUs; "
            f"{graph.name} has {len(candidates)}"
        )
    reduces = (
        estimate_all_reduce(graph, gpus) for gpus in _distinct_choices(graph, candidates, count)
    )
    sign = 1 if fastest else -1
    # among equals, prefer faster wires, and then rings that pass no GPU twice
    return max(
        reduces,
        key=lambda a: (sign * rate(a), sign * a.bytes_per_second, -sum(map(len, a.rings))),
    )


def _distinct_choices(
    graph: MachineGraph, gpus: Sequence[str], count: int
) -> Iterator[tuple[str, ...]]:
    """Yield every choice of GPUs, except those connected in the same way as an earlier one."""
    numbers: dict[object, int] = {}  # small integers, because millions of pairs are compared
    connections = {
        pair: numbers.setdefault(_describe_connection(graph, *pair), len(numbers))
        for pair in combinations(gpus, 2)
    }
    visited: set[tuple[int, ...]] = set()
    for choice in combinations(gpus, count):
        key = tuple(connections[pair] for pair in combinations(choice, 2))
        if key not in visited:
            visited.add(key)
            yield choice


def _describe_connection(graph: MachineGraph, a: str, b: str) -> object:
    """Return everything that affects the rate of a pair; the class implies which wires it shares with others."""
    wires = [hop.wire for hop in graph.path(a, b)]
    properties = tuple((wire.kind, wire.bytes_per_second, wire.latency_seconds) for wire in wires)
    access = graph.gpu_links(a, b), graph.has_peer_access(a, b)
    return (*access, graph.pcie_class(a, b), properties)


def _pairs(ring: Ring) -> Iterator[tuple[str, str]]:
    yield from pairwise((*ring, ring[0]))


def _hops(graph: MachineGraph, a: str, b: str) -> Iterator[tuple[Hop, float]]:
    staged = not graph.has_peer_access(a, b)
    for hop in graph.transfer_path(a, b):
        if not staged:
            yield hop, 1.0
        elif hop.wire.kind != "socket":  # every GPU of a ring sends and receives at once
            yield hop, STAGED_BOTH_WAYS_SHARE


def _find_pcie_ring(graph: MachineGraph, gpus: tuple[str, ...]) -> Ring:
    """Find the fastest ring over PCIe among all orders of a few GPUs, or among tree walks of many."""
    first, *others = gpus
    if len(gpus) <= _MAX_PERMUTED_GPUS:
        orders: Iterator[Ring] = ((first, *rest) for rest in permutations(others))
    else:
        orders = (_tree_order(graph, (start, *(g for g in gpus if g != start))) for start in gpus)
    return max(orders, key=lambda ring: sum_ring_rates(graph, (ring,)))


def _tree_order(graph: MachineGraph, gpus: tuple[str, ...]) -> Ring:
    """Always continue with the nearest GPU: this tree walk crosses each wire once in each direction."""
    distances = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, NOT_CONNECTED: 6}
    remaining = list(gpus)
    order = [remaining.pop(0)]
    while remaining:
        last = order[-1]
        nearest = min(
            remaining,
            key=lambda gpu: (-graph.gpu_links(last, gpu), distances[graph.pcie_class(last, gpu)]),
        )
        remaining.remove(nearest)
        order.append(nearest)
    return tuple(order)


def _compute_nvlink_rate(
    graph: MachineGraph, gpus: tuple[str, ...], rings: tuple[Ring, ...]
) -> float:
    link_rate = min(
        hop.wire.bytes_per_second / hop.wire.width
        for ring in rings
        for source, target in _pairs(ring)
        for hop in graph.path(source, target)
    )
    if len(gpus) == 2:
        return graph.gpu_links(*gpus) * link_rate
    if _are_switched(graph, gpus):
        return min(graph.gpu_links(a, b) for a, b in combinations(gpus, 2)) * link_rate
    counts = {graph.gpu_links(a, b) for a, b in combinations(gpus, 2)}
    if all(hop.wire.kind == "fabric" for hop in graph.path(*gpus[:2])) and len(counts) == 1:
        return MESH_SHARE * (len(gpus) - 1) * counts.pop() * link_rate
    return 2 * len(rings) * link_rate  # each ring runs both ways


def _compute_switch_gain(
    graph: MachineGraph, gpus: tuple[str, ...], rings: tuple[Ring, ...], ring_rate: float
) -> float:
    """Return the rate of an all-reduce in the NVSwitches (NVLS) relative to that of the rings, at least 1.

    Each of n GPUs sends its N bytes once, for the switch to add up, and a share N/n of the sums once more. So it sends
    N·(n+1)/n bytes, where a ring sends N·2(n−1)/n: NVLS at a rate r has a bus bandwidth of r·2(n−1)/(n+1).
    """
    if len(gpus) < 2 or not _are_switched(graph, gpus):
        return 1.0
    wire = graph.path(*rings[0][:2])[0].wire
    link = links().get(f"nvlink-{wire.generation}") if wire.kind == "nvlink" else None
    if link is None or link.nvls_gb_per_second is None or len(gpus) < (link.nvls_min_gpus or 0):
        return 1.0
    rate = link.nvls_gb_per_second * 1e9 * graph.gpu_links(*gpus[:2])
    return max(1.0, rate * 2 * (len(gpus) - 1) / (len(gpus) + 1) / ring_rate)


def _are_switched(graph: MachineGraph, gpus: tuple[str, ...]) -> bool:
    """Return whether NVSwitches connect all these GPUs."""
    return all(
        len(graph.path(a, b)) == 2 and graph.gpu_links(a, b) for a, b in combinations(gpus, 2)
    )


def _find_nvlink_rings(graph: MachineGraph, gpus: tuple[str, ...]) -> tuple[Ring, ...]:
    """Find as many rings as the NVLinks between these GPUs allow, with each link in one ring only."""
    if len(gpus) == 2:
        return (gpus,) if graph.gpu_links(*gpus) else ()
    if _are_switched(graph, gpus):
        return (gpus,)
    links = {frozenset(pair): graph.gpu_links(*pair) for pair in combinations(gpus, 2)}
    return pack_rings(gpus, links) or find_detoured_ring(gpus, links)


def host_to_gpu_bytes_per_second(graph: MachineGraph, gpus: Sequence[str]) -> float:
    """Return the rate of each GPU while all of these GPUs read from their socket's memory."""
    paths = [graph.path(graph.find_socket(gpu), gpu) for gpu in gpus]
    loads = Counter((id(hop.wire), hop.source) for path in paths for hop in path)
    return min(
        hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
        for path in paths
        for hop in path
    )
