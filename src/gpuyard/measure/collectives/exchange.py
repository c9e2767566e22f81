"""Times collectives in a rank: first plain sends over the links, then each operation at each size.

Each operation runs once to check its result, then repeatedly to time it.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from gpuyard.choices import Collective
from gpuyard.measure.collectives.group import RankGroup
from gpuyard.measure.collectives.records import (
    CollectivesJob,
    Probe,
    RingPair,
    Started,
    TimedCollective,
)
from gpuyard.run.rank_process import Emit

_ELEMENT_BYTES = 4
# small integers: their sums over 250 ranks are below 2^24, so float32 adds them without rounding
_PATTERN = 251
_BLOCK = _PATTERN * 4096  # fill and check in blocks, so that a gigabyte needs little extra memory
_LATENCY_STEPS = 20
_LATENCY_WINDOWS = 7
_FIRST_PROBE_BYTES, _LAST_PROBE_BYTES = 2**16, 2**26
_PROBE_SECONDS = 0.1
_PAIR_SECONDS = 0.03
_MAX_PAIRS = 64
# short operations run several times in a row, so that ranks leaving the barrier at different times matter less
_SHORT_SECONDS, _MAX_IN_A_ROW = 5e-3, 20


def time_collectives(job: CollectivesJob, group: RankGroup, report: Emit) -> None:
    """Probe the links, then time every operation at every size."""
    report(Started(operation=None, bytes=0))
    report(probe_links(group))
    for operation in job.operations:
        for size in job.sizes:
            report(Started(operation=operation, bytes=size))
            report(time_collective(operation, size, group, job))


def probe_links(group: RankGroup) -> Probe:
    """Measure latency and rate of plain sends around the ring, then each of its links alone."""
    tiny = group.zeros(1), group.zeros(1)
    time_hop = partial(_time_average, group, partial(group.shift, *tiny), _LATENCY_STEPS)
    _time_slowest_rank(group, time_hop)
    latency = median(_time_slowest_rank(group, time_hop) for _ in range(_LATENCY_WINDOWS))
    size = _FIRST_PROBE_BYTES
    while True:
        buffers = group.zeros(size // 4), group.zeros(size // 4)
        time_step = partial(_time_average, group, partial(group.shift, *buffers))
        seconds = _time_slowest_rank(group, time_step)
        if seconds >= _PROBE_SECONDS or size >= _LAST_PROBE_BYTES:
            break
        size *= 4
    repeats = [_time_slowest_rank(group, time_step) for _ in range(2)]
    rate = size / median([seconds, *repeats])
    pairs = _time_pairs(group, rate) if 2 < group.count <= _MAX_PAIRS else ()
    return Probe(latency_seconds=latency, ring_bytes_per_second=rate, pairs=pairs)


def time_collective(
    operation: Collective, size_bytes: int, group: RankGroup, job: CollectivesJob
) -> TimedCollective:
    """Run the operation once to check its result, then repeatedly to time it."""
    exchange = Exchange(operation, size_bytes, group)
    exchange.fill()
    exchange.run()
    (wrong,) = group.slowest([0.0 if exchange.is_correct() else 1.0])
    exchange.clear()
    first = _time_slowest_rank(group, partial(_time_average, group, exchange.run))
    in_a_row = max(1, min(_MAX_IN_A_ROW, int(_SHORT_SECONDS / first)))
    time_window = partial(_time_average, group, exchange.run, in_a_row)
    seconds: list[float] = []
    while not seconds or (
        len(seconds) < job.repeats and sum(seconds) * in_a_row < job.seconds_per_size
    ):
        seconds.append(_time_slowest_rank(group, time_window))
    return TimedCollective(
        operation=operation, bytes=size_bytes, seconds=tuple(seconds), correct=wrong == 0.0
    )


def _time_average(group: RankGroup, run: Callable[[], None], times: int = 1) -> float:
    start = group.clock()
    for _ in range(times):
        run()
    return (group.clock() - start) / times


def _time_slowest_rank(group: RankGroup, time_rank: Callable[[], float]) -> float:
    """Start all ranks at once, and return the time of the slowest."""
    group.barrier()
    return group.slowest([time_rank()])[0]


def _time_pairs(group: RankGroup, ring_bytes_per_second: float) -> tuple[RingPair, ...]:
    size = int(max(_FIRST_PROBE_BYTES, ring_bytes_per_second * _PAIR_SECONDS)) // 4 * 4
    buffer = group.zeros(size // 4)
    pairs = []
    for source in range(group.count):
        target = (source + 1) % group.count
        time_send = partial(_time_average, group, partial(group.send, buffer, source, target))
        rate = size / _time_slowest_rank(group, time_send)
        pairs.append(RingPair(source=source, target=target, bytes_per_second=rate))
    return tuple(pairs)


class Exchange:
    """One operation on float32 numbers, like gradients; `size_bytes` counts all ranks' parts, as in nccl-tests."""

    def __init__(self, operation: Collective, size_bytes: int, group: RankGroup) -> None:
        self.operation, self._group = operation, group
        self._part_elements = size_bytes // _ELEMENT_BYTES // group.count
        self._whole = group.zeros(self._part_elements * group.count)
        self._numbers = (torch.arange(_BLOCK + _PATTERN) % _PATTERN + 1).to(self._whole)
        split = operation in ("all_gather", "reduce_scatter")
        self._part = group.zeros(self._part_elements) if split else None

    def run(self) -> None:
        match self.operation, self._part:
            case "all_gather", torch.Tensor() as part:
                self._group.all_gather(part, self._whole)
            case "reduce_scatter", torch.Tensor() as part:
                self._group.reduce_scatter(self._whole, part)
            case "broadcast", _:
                self._group.broadcast(self._whole)
            case "reduce", _:
                self._group.reduce(self._whole)
            case _:
                self._group.all_reduce(self._whole)

    def fill(self) -> None:
        """Write numbers that differ by rank and position."""
        buffer = self._part if self.operation == "all_gather" else self._whole
        if buffer is not None:
            for start in range(0, buffer.numel(), _BLOCK):
                block = buffer[start : start + _BLOCK]
                block.copy_((self._group.rank + 1) * self._pattern(start, block.numel()))

    def clear(self) -> None:
        """Write zeros, so that repeated sums do not overflow."""
        self._whole.zero_()
        if self._part is not None:
            self._part.zero_()

    def is_correct(self) -> bool:
        """Return whether this rank has the right result after `fill` and `run`."""
        ranks, elements = self._group.count, self._part_elements
        total = ranks * (ranks + 1) // 2
        match self.operation, self._part:
            case "all_gather", _:
                return all(
                    self._holds(self._whole[rank * elements : (rank + 1) * elements], rank + 1)
                    for rank in range(ranks)
                )
            case "reduce_scatter", torch.Tensor() as part:
                return self._holds(part, total, self._group.rank * elements)
            case "broadcast", _:
                return self._holds(self._whole, 1)
            case "reduce", _ if self._group.rank != 0:
                return True  # the result of the other ranks is not defined
            case _:
                return self._holds(self._whole, total)

    def _holds(self, tensor: torch.Tensor, times: int, offset: int = 0) -> bool:
        for start in range(0, tensor.numel(), _BLOCK):
            block = tensor[start : start + _BLOCK]
            if not torch.equal(block, times * self._pattern(offset + start, block.numel())):
                return False
        return True

    def _pattern(self, start: int, elements: int) -> torch.Tensor:
        first = start % _PATTERN
        return self._numbers[first : first + elements]
