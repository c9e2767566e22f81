"""Normal or below, and why it may be."""

import pytest

from gpuyard.measure.collectives.expected import RingLinks
from gpuyard.measure.collectives.records import (
    CollectiveResult,
    CoreLoad,
    Probe,
    RingPair,
    TimedCollective,
)
from gpuyard.measure.collectives.verdict import find_slow_collectives, judge

LINKS = RingLinks(bytes_per_second=100e6, latency_seconds=100e-6)
QUIET = CoreLoad(before=0.02, during=0.3, ranks_per_core=1.0)
GOOD = Probe(latency_seconds=100e-6, ring_bytes_per_second=98e6)


def timed(seconds: float, size: int = 10_000_000, *, correct: bool = True) -> TimedCollective:
    return TimedCollective(
        operation="all_reduce", bytes=size, seconds=(seconds,) * 3, correct=correct
    )


def result(seconds: float, size: int = 10_000_000) -> CollectiveResult:
    return judge(timed(seconds, size), "gloo", 4, LINKS)


def causes(
    *results: CollectiveResult,
    probe: Probe = GOOD,
    load: CoreLoad = QUIET,
    link: float | None = 104e6,
    emulated: bool = False,
) -> list[str]:
    findings = find_slow_collectives(
        results,
        links=LINKS,
        probe=probe,
        load=load,
        link_bytes_per_second=link,
        emulated=emulated,
    )
    return [cause.name for finding in findings for cause in finding.causes]


def test_bandwidths_are_those_of_nccl_tests() -> None:
    # 10 MB over 4 ranks in 0.2 s: 50 MB/s, times 2·3/4
    judged = result(0.2)
    assert judged.algorithm_bytes_per_second == pytest.approx(50e6)
    assert judged.bus_bytes_per_second == pytest.approx(75e6)
    # 6 hops of 100 µs and 15 MB at 100 MB/s
    assert judged.expected_seconds == pytest.approx(0.1506)
    assert judged.ratio == pytest.approx(0.753)
    assert judged.verdict == "normal"


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.15, "normal"), (0.19, "normal"), (0.21, "below")]
)
def test_a_quarter_below_the_model_is_below(seconds: float, verdict: str) -> None:
    assert result(seconds).verdict == verdict


def test_small_messages_are_judged_by_half() -> None:
    # 1 kB: 6 hops of 100 µs are nearly all of it
    assert result(1.1e-3, 1000).latency_bound
    assert result(1.1e-3, 1000).verdict == "normal"
    assert result(1.3e-3, 1000).verdict == "below"


def test_a_wrong_result_is_neither_normal_nor_below() -> None:
    assert judge(timed(0.15, correct=False), "gloo", 4, LINKS).verdict == "wrong"


def test_normal_rates_give_no_finding() -> None:
    assert causes(result(0.16)) == []


def test_a_slow_link_is_named_where_its_rate_is_known() -> None:
    slow = Probe(latency_seconds=100e-6, ring_bytes_per_second=50e6)
    assert causes(result(0.3), probe=slow) == ["slow-link"]
    assert causes(result(0.3), probe=slow, link=None) == ["algorithm"]


def test_a_slow_pair_is_named_unless_it_is_emulated() -> None:
    rates = (98e6, 98e6, 12e6, 98e6)
    pairs = tuple(
        RingPair(source=i, target=(i + 1) % 4, bytes_per_second=rate)
        for i, rate in enumerate(rates)
    )
    probe = Probe(latency_seconds=1e-4, ring_bytes_per_second=98e6, pairs=pairs)
    (finding,) = find_slow_collectives(
        [result(0.3)],
        links=LINKS,
        probe=probe,
        load=QUIET,
        link_bytes_per_second=104e6,
        emulated=False,
    )
    assert "2 → 3 at 96 Mbit/s" in finding.causes[0].why
    assert causes(result(0.3), probe=probe, emulated=True) == ["algorithm"]


def test_busy_cores_come_first() -> None:
    busy = CoreLoad(before=0.8, during=0.99, ranks_per_core=4.0)
    slow = Probe(latency_seconds=100e-6, ring_bytes_per_second=50e6)
    assert causes(result(0.3), load=busy, probe=slow) == [
        "other-load",
        "saturated-cores",
        "slow-link",
    ]


def test_only_small_messages_slow_is_latency() -> None:
    assert causes(result(2e-3, 1000), result(0.15)) == ["latency"]
