"""Rings over direct NVLinks: as many at once as the links allow, and one that passes a GPU more than once
where no plain ring closes."""

from collections import Counter

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
