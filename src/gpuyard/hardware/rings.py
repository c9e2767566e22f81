"""What rings through GPUs run at, where rings that share a wire share its rate.

The rate given is NCCL's bus bandwidth: for one ring that of its slowest hop, for several the sum.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from gpuyard.errors import UserMistake
from gpuyard.hardware.graph import GPU_LINKS, NOT_JOINED, Hop, MachineGraph

_MOST_STEPS = 20_000  # of a search; beyond it the best that was found so far stands
_MANY_GPUS = 16  # a step looks at each: with more of them there are fewer steps
_MOST_LENGTHS = 5  # of walks that are searched to that end without finding one

Ring = tuple[str, ...]
Links = dict[frozenset[str], int]


def pack_rings(gpus: tuple[str, ...], links: Links) -> tuple[Ring, ...]:
    """The largest set of edge-disjoint rings through all the GPUs, by search with a bound.

    A ring takes two links of every GPU, so half of the poorest GPU's links is the most there can be.
    """
    ends = Counter(gpu for pair, count in links.items() for gpu in pair for _ in range(count))
    most = min((ends[gpu] for gpu in gpus), default=0) // 2
    best: tuple[Ring, ...] = ()
    steps_left = _most_steps(gpus)

    def extend(ring: list[str], packed: tuple[Ring, ...]) -> None:
        nonlocal best, steps_left
        steps_left -= 1
        if len(best) == most or steps_left < 0:
            return
        if len(ring) == len(gpus):
            closing = frozenset((ring[-1], ring[0]))
            if links[closing]:
                links[closing] -= 1
                done = (*packed, tuple(ring))
                if len(done) > len(best):
                    best = done
                extend([gpus[0]], done)
                links[closing] += 1
            return
        for gpu in gpus:
            step = frozenset((ring[-1], gpu))
            if gpu not in ring and links.get(step):
                links[step] -= 1
                extend([*ring, gpu], packed)
                links[step] += 1

    if most:
        extend([gpus[0]], ())
    return best


def detoured_ring(gpus: tuple[str, ...], links: Links) -> tuple[Ring, ...]:
    """The shortest closed walk through all GPUs that uses no link twice, if there is one.

    Five V100s of a hybrid cube mesh are four in a square and one that only hangs on one of them: NCCL
    sends its traffic through that neighbour and stays on NVLink (`NCCL_P2P_LEVEL=NVB`).
    """
    given_up = 0
    for length in range(len(gpus) + 1, 2 * len(gpus) - 1):
        walk, steps = _closed_walk(gpus, dict(links), length)
        if walk is not None:
            return (walk,)
        given_up += steps > _most_steps(gpus)
        if given_up == _MOST_LENGTHS:
            break
    return ()


def _closed_walk(gpus: tuple[str, ...], left: Links, length: int) -> tuple[Ring | None, int]:
    """One of this length, if the search finds it, and the steps that this took."""
    steps, most_steps = 0, _most_steps(gpus)

    def extend(walk: Ring) -> Ring | None:
        nonlocal steps
        steps += 1
        missing = len(gpus) - len(set(walk))
        if steps > most_steps or missing > length - len(walk):
            return None
        if len(walk) == length:
            return walk if left.get(frozenset((walk[-1], walk[0]))) else None
        for gpu in gpus:
            step = frozenset((walk[-1], gpu))
            if left.get(step):
                left[step] -= 1
                found = extend((*walk, gpu))
                left[step] += 1
                if found is not None:
                    return found
        return None

    return extend((gpus[0],)), steps


def _most_steps(gpus: tuple[str, ...]) -> int:
    return _MOST_STEPS * _MANY_GPUS // max(_MANY_GPUS, len(gpus))


# Without peer access every message is written to host memory and read back by two copies. What they
# reach of the slowest wire: medians of `gpuyard catalog staged-copies`.
STAGED_SHARE = 0.8  # one way
STAGED_BOTH_WAYS_SHARE = 0.48  # of each direction, where both ends send and receive at once
_EXHAUSTIVE_ORDERS = 6  # up to 120 orders of a ring are all tried
MOST_EXACT_GPUS = 16


@dataclass(frozen=True)
class AllReduce:
    """The all-reduce over some GPUs: its rings, what the wires let them run at together, and the wire that
    limits them. Where it is staged, training gets less: `predict.platform.machine.ring_rate` says how much."""

    gpus: tuple[str, ...]
    rings: tuple[Ring, ...]
    bytes_per_second: float
    latency_seconds: float  # of the slowest hop
    kind: str  # "nvlink", "fabric", "pcie", "socket": what the limiting wire is
    staged: bool  # some hop goes through host memory


def simultaneous_bandwidth(graph: MachineGraph, rings: Sequence[Ring]) -> float:
    """All rings at once."""
    return sum(ring_rates(graph, rings))


def ring_rates(graph: MachineGraph, rings: Sequence[Ring]) -> list[float]:
    """Of each, all at once: every directed wire is shared evenly by the ring hops that cross it."""
    loads: Counter[tuple[int, str]] = Counter()
    crossed: list[list[tuple[Hop, float]]] = []
    for ring in rings:
        hops = [(hop, share) for a, b in _pairs(ring) for hop, share in _hops(graph, a, b)]
        crossed.append(hops)
        loads.update((id(hop.wire), hop.source) for hop, _ in hops)
    return [
        min(
            share * hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
            for hop, share in hops
        )
        for hops in crossed
    ]


def all_reduce(graph: MachineGraph, gpus: Sequence[str]) -> AllReduce:
    """The best rings through these GPUs: over NVLink where they close a ring, else over PCIe."""
    if len(set(gpus)) != len(gpus) or not gpus:
        raise UserMistake(f"an all-reduce needs distinct GPUs, got {', '.join(gpus) or 'none'}")
    # in the machine's order, so that the answer does not depend on how the GPUs are listed
    chosen = tuple(sorted((graph.device(gpu).id for gpu in gpus), key=graph.gpus.index))
    if len(chosen) == 1:
        return AllReduce(chosen, (), float("inf"), 0.0, "none", False)
    return _all_reduce(graph, chosen)


@lru_cache(maxsize=4096)
def _all_reduce(graph: MachineGraph, gpus: tuple[str, ...]) -> AllReduce:
    rings = _nvlink_rings(graph, gpus) or (_best_pcie_ring(graph, gpus),)
    # every wire works in both directions, so each ring is run both ways where NVLink carries it;
    # over PCIe the two directions of one ring already load both directions of a tree's wires
    hops = [
        (hop, share) for ring in rings for a, b in _pairs(ring) for hop, share in _hops(graph, a, b)
    ]
    limiting = min(hops, key=lambda h: h[1] * h[0].wire.bytes_per_second)[0].wire
    if all(hop.wire.kind in GPU_LINKS for hop, _ in hops):
        rate = _nvlink_rate(graph, gpus, rings)
    else:
        rate = simultaneous_bandwidth(graph, rings)
    latency = max(
        sum(hop.wire.latency_seconds for hop in graph.transfer_path(a, b))
        for ring in rings
        for a, b in _pairs(ring)
    )
    return AllReduce(gpus, rings, rate, latency, limiting.kind, any(share < 1 for _, share in hops))


def best_gpus(graph: MachineGraph, count: int, free: Sequence[str] | None = None) -> AllReduce:
    """The free GPUs with the fastest all-reduce; exact up to 16 GPUs, ties go to the first in order."""
    return _extreme(graph, count, free, fastest=True)


def worst_gpus(graph: MachineGraph, count: int, free: Sequence[str] | None = None) -> AllReduce:
    """The choice to avoid."""
    return _extreme(graph, count, free, fastest=False)


def side_by_side(graph: MachineGraph, gpus_each: int, jobs: int) -> tuple[AllReduce, ...]:
    """Every job takes the best GPUs that are left; each rate is what it gets while all exchange.

    NVLinks join two GPUs of one job and are never shared; PCIe switches and their uplinks are.
    """
    if jobs * gpus_each > len(graph.gpus):
        raise UserMistake(
            f"{jobs} jobs of {gpus_each} GPUs need {jobs * gpus_each}; "
            f"{graph.name} has {len(graph.gpus)}"
        )
    free = list(graph.gpus)
    alone: list[AllReduce] = []
    for _ in range(jobs):
        few = len(graph.gpus) <= MOST_EXACT_GPUS
        chosen = best_gpus(graph, gpus_each, free) if few else all_reduce(graph, free[:gpus_each])
        alone.append(chosen)
        free = [gpu for gpu in free if gpu not in chosen.gpus]
    over_pcie = [job for job in alone if job.kind not in (*GPU_LINKS, "none")]
    rates = iter(ring_rates(graph, [job.rings[0] for job in over_pcie]))
    return tuple(
        replace(job, bytes_per_second=next(rates)) if job in over_pcie else job for job in alone
    )


def _extreme(
    graph: MachineGraph, count: int, free: Sequence[str] | None, *, fastest: bool
) -> AllReduce:
    candidates = graph.gpus if free is None else tuple(graph.device(gpu).id for gpu in free)
    if not 1 <= count <= len(candidates):
        raise UserMistake(
            f"{count} GPUs were requested; {len(candidates)} are free on {graph.name}"
        )
    if len(candidates) > MOST_EXACT_GPUS:
        raise UserMistake(
            f"the best GPUs can be searched among up to {MOST_EXACT_GPUS}; {graph.name} has {len(candidates)}"
        )
    found = (all_reduce(graph, chosen) for chosen in _unlike(graph, candidates, count))
    sign = 1 if fastest else -1
    # of equals, rings that pass no GPU twice
    return max(found, key=lambda a: (sign * a.bytes_per_second, -sum(map(len, a.rings))))


def _unlike(graph: MachineGraph, gpus: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Every choice but those that look to the links just like an earlier one."""
    kinds: dict[object, int] = {}  # numbered, because millions of pairs are compared
    looks = {
        pair: kinds.setdefault(_look(graph, *pair), len(kinds)) for pair in combinations(gpus, 2)
    }
    seen: set[tuple[int, ...]] = set()
    for chosen in combinations(gpus, count):
        look = tuple(looks[pair] for pair in combinations(chosen, 2))
        if look not in seen:
            seen.add(look)
            yield chosen


def _look(graph: MachineGraph, a: str, b: str) -> object:
    """What joins a pair: NVLinks, and the wires of its path by what they are; which wires are shared follows
    from the classes."""
    wires = [hop.wire for hop in graph.path(a, b)]
    kinds = tuple((wire.kind, wire.bytes_per_second, wire.latency_seconds) for wire in wires)
    joined = graph.gpu_links(a, b), graph.offers_peer_to_peer(a, b)
    return (*joined, graph.pcie_class(a, b), kinds)


def _pairs(ring: Ring) -> Iterator[tuple[str, str]]:
    yield from pairwise((*ring, ring[0]))


def _hops(graph: MachineGraph, a: str, b: str) -> Iterator[tuple[Hop, float]]:
    staged = not graph.offers_peer_to_peer(a, b)
    for hop in graph.transfer_path(a, b):  # every GPU of a ring sends and receives
        yield hop, STAGED_BOTH_WAYS_SHARE if staged else 1.0


def _best_pcie_ring(graph: MachineGraph, gpus: tuple[str, ...]) -> Ring:
    """Neighbours in the tree are neighbours in the ring; small sets are searched through."""
    first, *others = gpus
    if len(gpus) <= _EXHAUSTIVE_ORDERS:
        orders: Iterator[Ring] = ((first, *rest) for rest in permutations(others))
    else:
        orders = (_tree_order(graph, (start, *(g for g in gpus if g != start))) for start in gpus)
    return max(orders, key=lambda ring: simultaneous_bandwidth(graph, (ring,)))


def _tree_order(graph: MachineGraph, gpus: tuple[str, ...]) -> Ring:
    """Always on to the nearest: a walk of the tree, which crosses each wire once in each direction."""
    nearness = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, NOT_JOINED: 6}
    left = list(gpus)
    order = [left.pop(0)]
    while left:
        here = order[-1]
        nearest = min(
            left, key=lambda g: (-graph.gpu_links(here, g), nearness[graph.pcie_class(here, g)])
        )
        left.remove(nearest)
        order.append(nearest)
    return tuple(order)


def _nvlink_rate(graph: MachineGraph, gpus: tuple[str, ...], rings: tuple[Ring, ...]) -> float:
    a, b = gpus[0], gpus[1]
    one_link = min(
        hop.wire.bytes_per_second / hop.wire.width
        for ring in rings
        for source, target in _pairs(ring)
        for hop in graph.path(source, target)
    )
    if len(gpus) == 2:
        return graph.gpu_links(a, b) * one_link
    if _switched(graph, gpus):
        return min(graph.gpu_links(x, y) for x, y in combinations(gpus, 2)) * one_link
    return 2 * len(rings) * one_link  # each undirected ring is run both ways


def _switched(graph: MachineGraph, gpus: tuple[str, ...]) -> bool:
    return all(
        len(graph.path(a, b)) == 2 and graph.gpu_links(a, b) for a, b in combinations(gpus, 2)
    )


def _nvlink_rings(graph: MachineGraph, gpus: tuple[str, ...]) -> tuple[Ring, ...]:
    """As many rings at once as the NVLinks between these GPUs allow, each link in one ring only."""
    if len(gpus) == 2:
        return (gpus,) if graph.gpu_links(*gpus) else ()
    if _switched(graph, gpus):
        return (gpus,)
    links = {frozenset(pair): graph.gpu_links(*pair) for pair in combinations(gpus, 2)}
    return pack_rings(gpus, links) or detoured_ring(gpus, links)


def host_to_gpu_bytes_per_second(graph: MachineGraph, chosen: Sequence[str]) -> float:
    """What each of these GPUs gets when all read from their socket's memory at once."""
    paths = [graph.path(graph.socket_of(gpu), gpu) for gpu in chosen]
    loads = Counter((id(hop.wire), hop.source) for path in paths for hop in path)
    return min(
        hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
        for path in paths
        for hop in path
    )
