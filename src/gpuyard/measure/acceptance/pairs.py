"""Pairs of nodes: which are measured in log₂ n rounds, and which node or path the slow ones point to.

In round k, node i is paired with node i xor 2ᵏ, so n nodes need log₂ n rounds instead of the n·(n−1)/2 pairs that
there are. A node that is slow in all its pairs has a slow link. A pair of nodes that are fast with others has a slow
path between them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_high

from gpuyard.measure.acceptance.records import PairRate
from gpuyard.measure.collectives.verdict import BELOW

Pair = tuple[int, int]


def plan_rounds(nodes: int) -> list[list[Pair]]:
    """Plan the pairs of each round. If n is not a power of two, nodes without a partner wrap around."""
    rounds: list[list[Pair]] = []
    planned: set[Pair] = set()
    distance = 1
    while distance < nodes:
        pairs: list[Pair] = []
        for node in range(nodes):
            partner = node ^ distance
            if partner >= nodes:
                partner = (node + distance) % nodes
            pair = _sort(node, partner)
            if pair in planned and node ^ distance >= nodes:
                pair = _sort(node, (node + 1) % nodes)
            if pair not in planned:
                planned.add(pair)
                pairs.append(pair)
        rounds.append(pairs)
        distance *= 2
    return rounds


def _sort(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def split_disjoint(pairs: Sequence[Pair], *, one_at_a_time: bool) -> list[list[Pair]]:
    """Split pairs into groups that run at once: each node is in one pair of a group at most."""
    groups: list[list[Pair]] = []
    for pair in pairs:
        for group in () if one_at_a_time else groups:
            if not any(node in other for other in group for node in pair):
                group.append(pair)
                break
        else:
            groups.append([pair])
    return groups


def merge_rates(rates: Sequence[PairRate]) -> list[PairRate]:
    """Keep the best rate of each pair and direction: whatever disturbs a measurement makes it slower."""
    best: dict[Pair, PairRate] = {}
    for rate in rates:
        best_rate = best.get((rate.a, rate.b))
        if best_rate is not None:
            rate = PairRate(  # noqa: PLW2901
                a=rate.a,
                b=rate.b,
                forward=max(rate.forward, best_rate.forward),
                backward=max(rate.backward, best_rate.backward),
            )
        best[rate.a, rate.b] = rate
    return list(best.values())


def find_reference(rates: Sequence[PairRate], expected: float | None) -> float:
    """Return the rate that a pair should reach: what most pairs reach, but not more than is expected."""
    typical = median_high(rate.slower for rate in rates)
    # with two nodes, or most links slow, the median is no reference
    return typical if expected is None else max(typical, min(expected, _best_rate(rates)))


def _best_rate(rates: Sequence[PairRate]) -> float:
    return max(rate.slower for rate in rates)


def find_slow_pairs(rates: Sequence[PairRate], expected: float | None) -> list[Pair]:
    """Return the pairs that are slow in one direction or both."""
    if not rates:
        return []
    limit = BELOW * find_reference(rates, expected)
    return [(rate.a, rate.b) for rate in rates if rate.slower < limit]


@dataclass(frozen=True)
class SlowNode:
    """A node that is slow in all its pairs."""

    node: int
    direction: str  # "sends", "receives", or "sends and receives"
    bytes_per_second: float
    pairs: int


@dataclass(frozen=True)
class SlowPath:
    """Slow pairs whose nodes are fast with others: the path between them, or between two halves of the nodes."""

    pairs: tuple[Pair, ...]
    bytes_per_second: float
    halves: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class PairVerdict:
    """The nodes and paths that explain all slow pairs."""

    reference: float
    nodes: tuple[SlowNode, ...]
    paths: tuple[SlowPath, ...]
    rate_by_node: dict[int, float]


def judge_pairs(rates: Sequence[PairRate], expected: float | None, nodes: int) -> PairVerdict:
    """Name the nodes and paths that are slow."""
    reference = find_reference(rates, expected)
    limit = BELOW * reference
    sends, receives = _group_by_node(rates, nodes)
    slow_nodes = []
    by_node = {}
    for node in range(nodes):
        if not sends[node]:
            continue
        sent, received = max(sends[node]), max(receives[node])
        by_node[node] = min(sent, received)
        slow = [verb for verb, rate in (("sends", sent), ("receives", received)) if rate < limit]
        if slow:
            slow_nodes.append(
                SlowNode(node, " and ".join(slow), min(sent, received), len(sends[node]))
            )
    slow_nodes = _drop_partners(slow_nodes, rates, limit)
    named = {slow.node for slow in slow_nodes}
    rest = [r for r in rates if r.slower < limit and not named & {r.a, r.b}]
    paths = tuple(_group_paths(rest, nodes))
    return PairVerdict(reference, tuple(slow_nodes), paths, by_node)


def _group_by_node(
    rates: Sequence[PairRate], nodes: int
) -> tuple[list[list[float]], list[list[float]]]:
    sends: list[list[float]] = [[] for _ in range(nodes)]
    receives: list[list[float]] = [[] for _ in range(nodes)]
    for rate in rates:
        sends[rate.a].append(rate.forward)
        receives[rate.b].append(rate.forward)
        sends[rate.b].append(rate.backward)
        receives[rate.a].append(rate.backward)
    return sends, receives


def _drop_partners(slow: list[SlowNode], rates: Sequence[PairRate], limit: float) -> list[SlowNode]:
    """Leave out nodes whose partners all have slow links: nothing is known about these nodes.

    With few nodes, a healthy node may have had one partner. The node with more slow pairs explains them.
    """
    suspects = {candidate.node for candidate in slow}
    partners: dict[int, set[int]] = {node: set() for node in suspects}
    for rate in rates:
        for node, partner in ((rate.a, rate.b), (rate.b, rate.a)):
            if node in suspects and rate.slower < limit:
                partners[node].add(partner)
    kept = {node for node in suspects if partners[node] - suspects}
    for candidate in sorted(slow, key=lambda node: -node.pairs):
        if not kept or not partners[candidate.node] <= kept:
            kept.add(candidate.node)
    return [candidate for candidate in slow if candidate.node in kept]


def _group_paths(slow: Sequence[PairRate], nodes: int) -> Iterator[SlowPath]:
    """Group slow pairs by round: if all pairs of a round are slow, the halves of the nodes are badly joined."""
    ungrouped = {(rate.a, rate.b): rate for rate in slow}
    for number, pairs in enumerate(plan_rounds(nodes)):
        if len(pairs) > 1 and all(pair in ungrouped for pair in pairs):
            low = tuple(node for node in range(nodes) if not node >> number & 1)
            high = tuple(node for node in range(nodes) if node >> number & 1)
            yield SlowPath(tuple(pairs), max(ungrouped[p].slower for p in pairs), (low, high))
            for pair in pairs:
                del ungrouped[pair]
    for pair, rate in ungrouped.items():
        yield SlowPath((pair,), rate.slower)
