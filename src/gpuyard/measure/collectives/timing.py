"""The clock of a bench of collectives: the links by themselves, then each operation by size."""

from collections.abc import Callable
from functools import partial
from statistics import median

from gpuyard.measure.collectives.exchange import Exchange, RankGroup
from gpuyard.measure.collectives.records import (
    CollectivesJob,
    Operation,
    Pair,
    Probe,
    TimedCollective,
)

_LATENCY_STEPS = 20
_LATENCY_WINDOWS = 7
_FIRST_PROBE_BYTES, _LAST_PROBE_BYTES = 2**16, 2**26
_PROBE_SECONDS = 0.1
_PAIR_SECONDS = 0.03
_MOST_PAIRS = 64
# shorter ones are run in a row, so that leaving the barrier one after the other does not count
_SHORT_SECONDS, _MOST_IN_A_ROW = 5e-3, 20


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


def _each_pair(group: RankGroup, ring_bytes_per_second: float) -> tuple[Pair, ...]:
    size = int(max(_FIRST_PROBE_BYTES, ring_bytes_per_second * _PAIR_SECONDS)) // 4 * 4
    buffer = group.zeros(size // 4)
    pairs = []
    for source in range(group.count):
        target = (source + 1) % group.count
        alone = partial(_seconds_of, group, partial(group.send, buffer, source, target))
        pairs.append(
            Pair(source=source, target=target, bytes_per_second=size / _together(group, alone))
        )
    return tuple(pairs)
