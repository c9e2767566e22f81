"""Times copies of main memory by one core, by two, and so on up to all usable cores."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from time import perf_counter

import numpy as np

from gpuyard.errors import GpuyardError

_MAX_CONSECUTIVE = 8
_BARRIER_SECONDS = 120.0


def choose_core_counts(usable: int) -> list[int]:
    """Choose 1, 2, … 8 cores, then doubled numbers, and all usable cores."""
    counts = set(range(1, min(usable, _MAX_CONSECUTIVE) + 1)) | {usable}
    doubled = 2 * _MAX_CONSECUTIVE
    while doubled < usable:
        counts.add(doubled)
        doubled *= 2
    return sorted(counts)


def time_copy(
    size_bytes: int,
    cores: Sequence[int],
    repeats: int,
    *,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """Time copies of an array of this size, split among the cores, until the last core is done.

    Each copy moves twice the size, reads plus writes, as STREAM counts it (McCalpin 1995).
    """
    source = np.empty(size_bytes, np.uint8)
    target = np.empty(size_bytes, np.uint8)
    bounds = np.linspace(0, size_bytes, len(cores) + 1, dtype=np.int64)
    barrier = Barrier(len(cores), timeout=_BARRIER_SECONDS)
    failures: list[str] = []

    def run(number: int) -> list[tuple[float, float]]:
        try:
            return copy_part(number)
        except OSError as error:
            failures.append(f"core {cores[number]}: {error.strerror}")
            barrier.abort()  # the other threads must not wait for this one
        except BrokenBarrierError:
            failures.append("a core did not reach the barrier")
        return []

    def copy_part(number: int) -> list[tuple[float, float]]:
        _pin_thread(cores[number])
        part = slice(int(bounds[number]), int(bounds[number + 1]))
        # a page is allocated in the memory of the core that writes it first, and all unwritten pages share
        # one page of zeros
        source[part] = 1
        target[part] = 0
        spans = []
        for _ in range(repeats):
            barrier.wait()
            start = clock()
            np.copyto(target[part], source[part])  # releases the global interpreter lock
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


def _pin_thread(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # 0 is the calling thread, which ends with the pool
