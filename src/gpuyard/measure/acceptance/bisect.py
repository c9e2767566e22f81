"""Finds the nodes that slow a collective down, by measuring halves: log₂ n rounds for one bad node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpuyard.measure.collectives.verdict import BELOW

MeasureRatio = Callable[[Sequence[int]], float]
"""Returns expected over measured time of a collective on these nodes."""


@dataclass(frozen=True)
class Bisection:
    """The nodes that make a collective slow, or two groups that are fast alone and slow together."""

    nodes: tuple[int, ...] = ()
    between: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    runs: int = 0


def bisect(nodes: Sequence[int], measure: MeasureRatio) -> Bisection:
    """Divide slow groups until single nodes are left; each of these is judged beside a node from a fast group."""
    runs = 0

    def is_slow(group: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        return measure(group) < BELOW

    bad: list[int] = []
    groups = [tuple(nodes)]
    fast: list[int] = []
    while groups:
        group = groups.pop()
        halves = group[: len(group) // 2], group[len(group) // 2 :]
        slow = [half for half in halves if len(half) > 1 and is_slow(half)]
        fast += [node for half in halves if len(half) > 1 and half not in slow for node in half]
        single = [half[0] for half in halves if len(half) == 1]
        reference = next((node for node in fast if node not in single), None)
        if single and reference is None:  # two or three nodes, and no other to compare them with
            pairs = [pair for pair in combinations(group, 2) if len(group) > 2]
            paired = {
                node for pair in pairs if pair not in slow and not is_slow(pair) for node in pair
            }
            bad += [node for node in group if node not in paired]
            continue
        named = [node for node in single if reference is not None and is_slow((node, reference))]
        bad += named
        groups += slow
        if not slow and not named and not bad:
            return Bisection(between=halves, runs=runs)
    return Bisection(tuple(sorted(bad)), runs=runs)
