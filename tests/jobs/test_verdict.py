"""The verdict on a running training: each cause is named, and a healthy run is not accused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.jobs.job import ExpectedSpeed
from gpuyard.jobs.judged_run import expect_speed
from gpuyard.jobs.verdict import Expectation, judge
from gpuyard.policies.curve import StepParts
from gpuyard.reporting.ranks import RankWindow

STEP = 0.1
EXPECTED = Expectation(0.08, 0.12, 0.07, 0.03, 256.0)


def create_windows(
    ranks: int = 4, count: int = 10, *, compute: float = 0.07, exchange: float | None = 0.03,
    wait: float = 0.0, samples: float = 256.0 * 20,
) -> list[RankWindow]:  # fmt: skip
    return [
        RankWindow(
            rank, 1000.0 + 10 * i, 20, compute + (exchange or 0.0), compute, 0.0, exchange,
            wait, f"node{rank}", 5, samples if rank == 0 else 0.0,
        )
        for i in range(count)
        for rank in range(ranks)
    ]  # fmt: skip


def change(windows: list[RankWindow], rank: int | None, **more: Any) -> list[RankWindow]:
    return [replace(w, **more) if rank in (None, w.rank) else w for w in windows]


def test_a_healthy_run_is_normal_with_and_without_a_prediction() -> None:
    for expected in (None, EXPECTED):
        verdict = judge(create_windows(), expected)
        assert verdict is not None
        assert verdict.normal
        assert verdict.sentence.startswith("Normal")
    assert judge([]) is None
    assert judge([replace(w, warmup=True) for w in create_windows()]) is None


def test_a_slow_rank_is_named_with_host_gpu_and_cost() -> None:
    # rank 2 computes 40 ms longer, the others wait for it in the exchange
    windows = change(create_windows(), None, step_seconds=0.14, exchange_seconds=0.07)
    windows = change(windows, 2, compute_seconds=0.11, exchange_seconds=0.03)
    verdict = judge(windows, EXPECTED)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("slow rank", 2)]
    assert "rank 2 (node2, GPU 5)" in verdict.sentence
    assert verdict.causes[0].cost == pytest.approx(0.04 / 0.14)
    busy = judge(change(windows, 2, cpu_wait=0.4), EXPECTED)
    assert busy is not None
    assert [cause.name for cause in busy.causes] == ["other job"]
    clocks = change(windows, None, clock_mhz=1800.0)
    slow_clock = change(clocks, 2, clock_mhz=1200.0, clock_reasons=("SW Power Cap",))
    throttled = judge(slow_clock, EXPECTED)
    assert throttled is not None
    assert [cause.name for cause in throttled.causes] == ["throttled clock"]
    assert "1,200 MHz" in throttled.sentence
    shared = judge(change(windows, 2, gpu_processes=2), EXPECTED)
    assert shared is not None
    assert [cause.name for cause in shared.causes] == ["other job"]


def test_starved_input_of_all_ranks_and_of_one() -> None:
    starved = change(create_windows(), None, step_seconds=0.2, input_seconds=0.1)
    verdict = judge(starved, EXPECTED)
    assert verdict is not None
    assert verdict.causes[0].name == "input starved"
    assert verdict.causes[0].rank is None
    one = change(create_windows(), None, step_seconds=0.15, exchange_seconds=0.08)
    one = change(one, 3, input_seconds=0.05, exchange_seconds=0.03)
    verdict = judge(one, EXPECTED)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("input starved", 3)]


def test_a_slow_link_needs_a_prediction() -> None:
    slow = create_windows(exchange=0.08)
    verdict = judge(slow, EXPECTED)
    assert verdict is not None
    assert [cause.name for cause in verdict.causes] == ["slow link"]
    alone = judge(slow)
    assert alone is not None
    assert alone.normal


def test_a_wrong_batch_and_a_wrong_precision() -> None:
    batch = judge(create_windows(samples=128.0 * 20), EXPECTED)
    assert batch is not None
    assert [cause.name for cause in batch.causes] == ["wrong batch"]
    precision = judge(create_windows(compute=0.14), EXPECTED)
    assert precision is not None
    assert [cause.name for cause in precision.causes] == ["precision"]
    crowded = judge(create_windows(compute=0.14, wait=0.5), EXPECTED)
    assert crowded is not None
    assert [cause.name for cause in crowded.causes] == ["other job"]


def test_a_submitted_job_is_compared_with_the_parts_of_its_predicted_step() -> None:
    windows = create_windows(compute=0.3)
    speed = ExpectedSpeed(2560.0, 2133.0, 3200.0, StepParts(256.0, 0.07, 0.03))
    verdict = judge(windows, expect_speed(windows, speed))
    assert verdict is not None
    assert [cause.name for cause in verdict.causes] == ["precision"]
    # another batch than the predicted one: its parts are unknown
    other = expect_speed(windows, replace(speed, parts=StepParts(64.0, 0.02, 0.03)))
    assert other is not None
    assert other.compute_seconds is None


def test_a_slow_rank_does_not_hide_that_all_ranks_are_slow() -> None:
    windows = change(create_windows(compute=0.28), None, step_seconds=0.43, exchange_seconds=0.15)
    windows = change(windows, 2, compute_seconds=0.4, exchange_seconds=0.03)
    verdict = judge(windows, EXPECTED)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [
        ("precision", None), ("slow rank", 2),
    ]  # fmt: skip
    assert "?" not in verdict.sentence


def test_causes_are_in_the_order_of_their_cost() -> None:
    windows = change(create_windows(exchange=0.09), None, step_seconds=0.25, input_seconds=0.09)
    verdict = judge(windows, EXPECTED)
    assert verdict is not None
    assert [cause.name for cause in verdict.causes] == ["input starved", "slow link"]
    costs = [cause.cost for cause in verdict.causes]
    assert costs == sorted(costs, reverse=True)


def test_drift_is_dated() -> None:
    normal, slow = create_windows(count=20), create_windows(count=10, compute=0.085)
    later = [replace(w, at=w.at + 200) for w in slow]
    verdict = judge(normal + later)
    assert verdict is not None
    assert verdict.drift is not None
    assert verdict.drift.since == pytest.approx(1200)
    assert verdict.drift.slowdown == pytest.approx(0.15)
    assert verdict.drift.before_seconds == pytest.approx(190)
    assert not verdict.normal
    assert verdict.drift.part == "compute"
    assert verdict.drift.part_seconds == pytest.approx((0.07, 0.085))
    assert verdict.lost_share == pytest.approx(0.015 / 0.115)
    waiting = judge(normal + [replace(w, cpu_wait=0.2) for w in later])
    assert waiting is not None
    assert waiting.drift is not None
    assert waiting.drift.part == "CPU wait"
    faster = judge(slow + [replace(w, at=w.at + 200) for w in normal])
    assert faster is not None
    assert faster.drift is None


@given(
    st.integers(1, 16),
    st.lists(st.floats(0.97, 1.03), min_size=16, max_size=16),
    st.integers(1, 30),
)
def test_small_noise_accuses_no_rank(ranks: int, noise: list[float], count: int) -> None:
    windows = [
        replace(w, compute_seconds=w.compute_seconds * noise[w.rank], step_seconds=STEP * 1.02)
        for w in create_windows(ranks, count)
    ]
    verdict = judge(windows, EXPECTED)
    assert verdict is not None
    assert verdict.normal, verdict.sentence
    assert verdict.drift is None


@given(st.integers(2, 12), st.data(), st.floats(0.3, 3.0))
def test_one_slow_rank_is_found_whatever_its_number(
    ranks: int, data: st.DataObject, extra: float
) -> None:
    slow = data.draw(st.integers(0, ranks - 1))
    longer = 0.07 * extra
    windows = change(
        create_windows(ranks), None, step_seconds=0.1 + longer, exchange_seconds=0.03 + longer
    )
    windows = change(windows, slow, compute_seconds=0.07 + longer, exchange_seconds=0.03)
    verdict = judge(windows)
    assert verdict is not None
    assert [cause.rank for cause in verdict.causes] == [slow]


def test_a_rank_that_times_no_exchange_is_not_compared() -> None:
    windows = change(create_windows(exchange=None), 1, compute_seconds=0.2)
    verdict = judge(windows)
    assert verdict is not None
    assert verdict.normal


def test_a_busy_cpu_excuses_a_slow_exchange() -> None:
    # measured on a busy machine: 99 ms in place of 43, with ranks that waited 37% of the time for a CPU
    expected = Expectation(0.08, 0.12, None, 0.043)
    busy = judge(create_windows(2, compute=0.06, exchange=0.099, wait=0.37), expected)
    calm = judge(create_windows(2, compute=0.06, exchange=0.079, wait=0.05), expected)
    assert busy is not None
    assert calm is not None
    assert [cause.name for cause in busy.causes] == ["other job"]
    assert [cause.name for cause in calm.causes] == ["slow link"]


def test_an_exchange_of_a_step_as_long_as_predicted_accuses_no_link() -> None:
    # a healthy loop that exchanges after its backward pass, where the prediction hides most of the exchange
    windows = create_windows(compute=0.0371, exchange=0.008)
    verdict = judge(windows, Expectation(0.0306, 0.0842, 0.037, 0.00095))
    assert verdict is not None
    assert verdict.normal, verdict.sentence


def test_ranks_on_a_crowded_machine_are_not_accused_of_its_noise() -> None:
    # measured on a busy machine without any fault: 36 and 42 ms of compute
    windows = change(
        create_windows(2), None, step_seconds=0.0526, compute_seconds=0.036, cpu_wait=0.44
    )
    windows = change(windows, 1, compute_seconds=0.0421, cpu_wait=0.51)
    verdict = judge(windows)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("other job", None)]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_one_starved_rank_is_named_among_few(ranks: int) -> None:
    windows = change(create_windows(ranks), None, step_seconds=0.15, exchange_seconds=0.08)
    windows = change(windows, 1, input_seconds=0.05, exchange_seconds=0.03)
    verdict = judge(windows)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("input starved", 1)]


def test_drift_in_a_month_of_reports_is_dated_to_the_minute() -> None:
    normal = create_windows(1, 30_000)
    slow = [replace(w, at=w.at + 300_000) for w in create_windows(1, 10_000, compute=0.085)]
    verdict = judge(normal + slow)
    assert verdict is not None
    assert verdict.drift is not None
    assert verdict.drift.since == pytest.approx(301_000)


def test_a_lone_rank_that_waits_for_its_cpu_is_not_normal() -> None:
    verdict = judge(create_windows(1, exchange=None, wait=0.6))
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("other job", None)]
    calm = judge(create_windows(1, exchange=None, wait=0.05))
    assert calm is not None
    assert calm.normal


def test_waiting_for_a_cpu_is_compared_even_if_the_exchange_is_not_timed() -> None:
    windows = change(create_windows(compute=0.1, exchange=None), 2, cpu_wait=0.3)
    verdict = judge(windows)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("other job", 2)]


def test_the_wait_is_that_of_the_whole_step() -> None:
    # of a 100 ms step, rank 1 computes 40 ms; it waits 25 of these for a CPU, the others compute 15 ms
    windows = change(create_windows(2, compute=0.015, exchange=0.085), 1, compute_seconds=0.04,
                     exchange_seconds=0.06, cpu_wait=0.25)  # fmt: skip
    verdict = judge(windows)
    assert verdict is not None
    assert [(cause.name, cause.rank) for cause in verdict.causes] == [("other job", 1)]
    assert verdict.ranks[1].own_compute == pytest.approx(0.015)


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_a_rank_that_stops_reporting_is_named_and_no_longer_compared(ranks: int) -> None:
    windows = [
        replace(w, at=1000 + 30 * (w.at - 1000) / 10) for w in create_windows(ranks, count=40)
    ]
    gone = [w for w in windows if w.rank != 1 or w.at < 1600]
    verdict = judge(gone)
    assert verdict is not None
    assert verdict.silence is not None
    assert verdict.silence.ranks == (1,)
    assert not verdict.silence.everyone
    assert {rank.rank for rank in verdict.ranks} == set(range(ranks)) - {1}
    skewed = judge([replace(w, at=w.at + 5000 * (w.rank % 3)) for w in windows])
    assert skewed is not None
    assert skewed.normal
    assert skewed.silence is None


def test_a_training_without_new_reports_is_stuck() -> None:
    windows = create_windows()
    last = max(w.at for w in windows)
    alive, stuck = judge(windows, now=last + 60), judge(windows, now=last + 600)
    assert alive is not None
    assert alive.normal
    assert stuck is not None
    assert not stuck.normal
    assert stuck.lost_share == 1
    assert "since" in stuck.sentence


def test_an_evaluation_as_long_as_earlier_ones_is_not_stuck() -> None:
    windows = [replace(w, at=w.at + (900 if w.at > 1050 else 0)) for w in create_windows()]
    verdict = judge(windows, now=max(w.at for w in windows) + 1200)
    assert verdict is not None
    assert verdict.normal


def test_ranks_that_a_restart_left_out_are_gone() -> None:
    windows = [replace(w, workers=4) for w in create_windows(4)]
    later = [replace(w, at=w.at + 1000, workers=2) for w in create_windows(2)]
    verdict = judge(windows + later)
    assert verdict is not None
    assert [rank.rank for rank in verdict.ranks] == [0, 1]
    assert verdict.silence is None
