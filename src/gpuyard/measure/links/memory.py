"""How fast main memory is copied by one core, by two, and so on up to all that may be used."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from time import perf_counter

import numpy as np

from gpuyard.errors import GpuyardError

_ALL_COUNTS_UP_TO = 8
_STUCK_SECONDS = 120.0


def core_counts(usable: int) -> list[int]:
    """1, 2, … 8, then doubling, and all of them."""
    counts = set(range(1, min(usable, _ALL_COUNTS_UP_TO) + 1)) | {usable}
    doubled = 2 * _ALL_COUNTS_UP_TO
    while doubled < usable:
        counts.add(doubled)
        doubled *= 2
    return sorted(counts)


def copy_seconds(
    size_bytes: int,
    cores: Sequence[int],
    repeats: int,
    *,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """Copy an array of this size, each core its part; a repeat lasts until the last core is done.

    Read and written are twice the size, as STREAM counts a copy (McCalpin 1995).
    """
    source = np.empty(size_bytes, np.uint8)
    target = np.empty(size_bytes, np.uint8)
    bounds = np.linspace(0, size_bytes, len(cores) + 1, dtype=np.int64)
    gate = Barrier(len(cores), timeout=_STUCK_SECONDS)
    failures: list[str] = []

    def run(number: int) -> list[tuple[float, float]]:
        try:
            return copy_part(number)
        except OSError as error:
            failures.append(f"core {cores[number]}: {error.strerror}")
            gate.abort()  # nobody waits for a core that will not come
        except BrokenBarrierError:
            failures.append("a core did not come")
        return []

    def copy_part(number: int) -> list[tuple[float, float]]:
        _stay_on(cores[number])
        part = slice(int(bounds[number]), int(bounds[number + 1]))
        # pages belong to the memory of the core that first writes them, and pages that nobody wrote
        # are all the same page of zeros
        source[part] = 1
        target[part] = 0
        spans = []
        for _ in range(repeats):
            gate.wait()
            start = clock()
            np.copyto(target[part], source[part])  # lets go of the interpreter's lock
            spans.append((start, clock()))
        return spans

    with ThreadPoolExecutor(len(cores)) as pool:
        by_core = list(pool.map(run, range(len(cores))))
    if failures:
        raise GpuyardError(f"memory could not be measured: {failures[0]}")
    return [
        max(end for _, end in spans) - min(start for start, _ in spans)
        for spans in zip(*by_core, strict=True)
    ]


def _stay_on(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # 0 is the calling thread, and it ends with the pool
