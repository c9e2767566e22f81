"""What a rank does under the clock: it probes the links by themselves, then runs each operation at each size, once to
check its result and then for its time."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from gpuyard.measure.collectives.group import RankGroup
from gpuyard.measure.collectives.records import (
    CollectivesJob,
    Operation,
    Probe,
    RingPair,
    Started,
    TimedCollective,
)
from gpuyard.run.rank_process import Emit

_ELEMENT_BYTES = 4
# small whole numbers: their sums over 250 ranks are below 2^24, so float32 adds them without rounding
_PATTERN = 251
_BLOCK = _PATTERN * 4096  # filled and checked in pieces, so that a gigabyte needs little beside it
_LATENCY_STEPS = 20
_LATENCY_WINDOWS = 7
_FIRST_PROBE_BYTES, _LAST_PROBE_BYTES = 2**16, 2**26
_PROBE_SECONDS = 0.1
_PAIR_SECONDS = 0.03
_MOST_PAIRS = 64
# shorter ones are run in a row, so that leaving the barrier one after the other does not count
_SHORT_SECONDS, _MOST_IN_A_ROW = 5e-3, 20


def time_all(job: CollectivesJob, group: RankGroup, report: Emit) -> None:
    """The links by themselves, then every operation at every size."""
    report(Started(operation=None, bytes=0))
    report(probe_links(group))
    for operation in job.operations:
        for size in job.sizes:
            report(Started(operation=operation, bytes=size))
            report(time_collective(operation, size, group, job))


def probe_links(group: RankGroup) -> Probe:
    """Latency and rate of a ring of bare sends, then each of its links alone."""
    tiny = group.zeros(1), group.zeros(1)
    hops = partial(_seconds_of, group, partial(group.shift, *tiny), _LATENCY_STEPS)
    _together(group, hops)
    latency = median(_together(group, hops) for _ in range(_LATENCY_WINDOWS))
    size = _FIRST_PROBE_BYTES
    while True:
        buffers = group.zeros(size // 4), group.zeros(size // 4)
        step = partial(_seconds_of, group, partial(group.shift, *buffers))
        took = _together(group, step)
        if took >= _PROBE_SECONDS or size >= _LAST_PROBE_BYTES:
            break
        size *= 4
    rate = size / median([took, _together(group, step), _together(group, step)])
    pairs = _each_pair(group, rate) if 2 < group.count <= _MOST_PAIRS else ()
    return Probe(latency_seconds=latency, ring_bytes_per_second=rate, pairs=pairs)


def time_collective(
    operation: Operation, size_bytes: int, group: RankGroup, job: CollectivesJob
) -> TimedCollective:
    """First once with a result that can be checked, then under the clock."""
    exchange = Exchange(operation, size_bytes, group)
    exchange.fill()
    exchange.run()
    (wrong,) = group.slowest([0.0 if exchange.is_right() else 1.0])
    exchange.clear()
    first = _together(group, partial(_seconds_of, group, exchange.run))
    in_a_row = max(1, min(_MOST_IN_A_ROW, int(_SHORT_SECONDS / first)))
    window = partial(_seconds_of, group, exchange.run, in_a_row)
    seconds: list[float] = []
    while not seconds or (
        len(seconds) < job.repeats and sum(seconds) * in_a_row < job.seconds_per_size
    ):
        seconds.append(_together(group, window))
    return TimedCollective(
        operation=operation, bytes=size_bytes, seconds=tuple(seconds), correct=wrong == 0.0
    )


def _seconds_of(group: RankGroup, run: Callable[[], None], times: int = 1) -> float:
    began = group.clock()
    for _ in range(times):
        run()
    return (group.clock() - began) / times


def _together(group: RankGroup, seconds: Callable[[], float]) -> float:
    """All ranks start at once, and the slowest counts."""
    group.barrier()
    return group.slowest([seconds()])[0]


def _each_pair(group: RankGroup, ring_bytes_per_second: float) -> tuple[RingPair, ...]:
    size = int(max(_FIRST_PROBE_BYTES, ring_bytes_per_second * _PAIR_SECONDS)) // 4 * 4
    buffer = group.zeros(size // 4)
    pairs = []
    for source in range(group.count):
        target = (source + 1) % group.count
        alone = partial(_seconds_of, group, partial(group.send, buffer, source, target))
        pairs.append(
            RingPair(source=source, target=target, bytes_per_second=size / _together(group, alone))
        )
    return tuple(pairs)


class Exchange:
    """float32, as gradients are. `size_bytes` is that of the whole, as nccl-tests counts it."""

    def __init__(self, operation: Operation, size_bytes: int, group: RankGroup) -> None:
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
        """Numbers that differ by rank and place."""
        filled = self._part if self.operation == "all_gather" else self._whole
        if filled is not None:
            for start in range(0, filled.numel(), _BLOCK):
                block = filled[start : start + _BLOCK]
                block.copy_((self._group.rank + 1) * self._pattern(start, block.numel()))

    def clear(self) -> None:
        """Zeros, which stay zeros however often they are added."""
        self._whole.zero_()
        if self._part is not None:
            self._part.zero_()

    def is_right(self) -> bool:
        """Whether this rank holds what it must after `fill` and `run`."""
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
                return True  # what the others hold is not defined
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
