"""A ring over NVLinks that passes a GPU more than once, where no plain ring closes.

Five V100s of a hybrid cube mesh are four in a square and one that only hangs on one of them: NCCL
sends its traffic through that neighbour and stays on NVLink (`NCCL_P2P_LEVEL=NVB`).
"""

_MOST_STEPS = 20_000

Walk = tuple[str, ...]
Links = dict[frozenset[str], int]


def detoured_ring(gpus: tuple[str, ...], links: Links) -> Walk | None:
    """The shortest closed walk through all GPUs that uses no link twice; None: there is none."""
    for length in range(len(gpus) + 1, 2 * len(gpus) - 1):
        walk = _closed_walk(gpus, dict(links), length)
        if walk is not None:
            return walk
    return None


def _closed_walk(gpus: tuple[str, ...], left: Links, length: int) -> Walk | None:
    steps_left = _MOST_STEPS

    def extend(walk: Walk) -> Walk | None:
        nonlocal steps_left
        steps_left -= 1
        missing = len(gpus) - len(set(walk))
        if steps_left < 0 or missing > length - len(walk):
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

    return extend((gpus[0],))
