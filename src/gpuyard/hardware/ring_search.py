"""Searches for rings over direct links: disjoint rings through all GPUs, or one walk that visits some twice."""

from collections import Counter

_MAX_STEPS = 20_000  # a search that takes longer returns its best result so far
_FULL_SEARCH_GPUS = 16  # a step examines every GPU: with more GPUs, a search gets fewer steps
_MAX_FAILED_LENGTHS = 5  # walk lengths whose search runs out of steps before the search gives up
Ring = tuple[str, ...]
Links = dict[frozenset[str], int]


def pack_rings(gpus: tuple[str, ...], links: Links) -> tuple[Ring, ...]:
    """Find the largest set of edge-disjoint rings through all GPUs, by bounded depth-first search.

    A ring uses two links of every GPU, so the GPU with the fewest links limits the number of rings.
    """
    links_per_gpu = Counter(
        gpu for pair, count in links.items() for gpu in pair for _ in range(count)
    )
    max_rings = min((links_per_gpu[gpu] for gpu in gpus), default=0) // 2
    best: tuple[Ring, ...] = ()
    remaining_steps = _limit_steps(gpus)

    def extend(ring: list[str], packed: tuple[Ring, ...]) -> None:
        nonlocal best, remaining_steps
        remaining_steps -= 1
        if len(best) == max_rings or remaining_steps < 0:
            return
        if len(ring) == len(gpus):
            closing = frozenset((ring[-1], ring[0]))
            if links[closing]:
                links[closing] -= 1
                rings = (*packed, tuple(ring))
                if len(rings) > len(best):
                    best = rings
                extend([gpus[0]], rings)
                links[closing] += 1
            return
        for gpu in gpus:
            step = frozenset((ring[-1], gpu))
            if gpu not in ring and links.get(step):
                links[step] -= 1
                extend([*ring, gpu], packed)
                links[step] += 1

    if max_rings:
        extend([gpus[0]], ())
    return best


def find_detoured_ring(gpus: tuple[str, ...], links: Links) -> tuple[Ring, ...]:
    """Find the shortest closed walk through all GPUs that uses no link twice, if there is one.

    For example, five V100s of a hybrid cube mesh are a square and a fifth GPU that is linked to one of the four.
    NCCL sends the fifth GPU's traffic through that neighbor and stays on NVLink (`NCCL_P2P_LEVEL=NVB`).
    """
    failed_lengths = 0
    for length in range(len(gpus) + 1, 2 * len(gpus) - 1):
        walk, steps = _find_closed_walk(gpus, dict(links), length)
        if walk is not None:
            return (walk,)
        failed_lengths += steps > _limit_steps(gpus)
        if failed_lengths == _MAX_FAILED_LENGTHS:
            break
    return ()


def _find_closed_walk(
    gpus: tuple[str, ...], unused_links: Links, length: int
) -> tuple[Ring | None, int]:
    """Search for a closed walk of this length; also return the number of steps that the search took."""
    steps, max_steps = 0, _limit_steps(gpus)

    def extend(walk: Ring) -> Ring | None:
        nonlocal steps
        steps += 1
        missing = len(gpus) - len(set(walk))
        if steps > max_steps or missing > length - len(walk):
            return None
        if len(walk) == length:
            return walk if unused_links.get(frozenset((walk[-1], walk[0]))) else None
        for gpu in gpus:
            step = frozenset((walk[-1], gpu))
            if unused_links.get(step):
                unused_links[step] -= 1
                closed_walk = extend((*walk, gpu))
                unused_links[step] += 1
                if closed_walk is not None:
                    return closed_walk
        return None

    return extend((gpus[0],)), steps


def _limit_steps(gpus: tuple[str, ...]) -> int:
    return _MAX_STEPS * _FULL_SEARCH_GPUS // max(_FULL_SEARCH_GPUS, len(gpus))
