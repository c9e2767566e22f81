"""Goodput: Young's and Daly's intervals, the formula against a simulation, and published interruption rates."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog import find_price, gpus
from gpuyard.catalog.interruptions import interruptions
from gpuyard.economics.goodput import (
    MeanTime,
    compute_goodput,
    daly_interval_hours,
    hours_per_useful_hour,
    spot_usd,
    young_interval_hours,
)
from gpuyard.economics.interruption_rates import find_failures, find_spot_interruptions

HOURS = st.floats(0, 1e5)


def test_young_and_daly_by_hand() -> None:
    # 5 minutes a checkpoint, one interruption in 24 h: sqrt(2 × 300 s × 86400 s) = 7200 s
    assert young_interval_hours(300 / 3600, 1 / 24) == pytest.approx(2.0)
    # Daly: 7200 × (1 + sqrt(300/172800)/3 + 300/172800/9) − 300 = 7001.4 s
    assert daly_interval_hours(300 / 3600, 1 / 24) * 3600 == pytest.approx(7001.4, abs=0.1)


@given(st.floats(1e-3, 0.5), st.floats(1e-4, 0.5), st.floats(0, 0.5), st.floats(0.3, 3))
def test_dalys_interval_is_hard_to_beat(
    saving: float, rate: float, restart: float, other: float
) -> None:
    best = hours_per_useful_hour(rate, saving, restart)
    interval = daly_interval_hours(saving, rate) * other
    assert best <= hours_per_useful_hour(rate, saving, restart, interval) * 1.002
    assert best >= 1


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2), HOURS, HOURS, st.floats(0, 1))
def test_spot_costs_more_with_more_interruptions_and_hours(
    one: float, other: float, saving: float, hours: float, more: float, restart: float
) -> None:
    few, many = sorted((one, other))
    low, high = sorted((hours, more))
    costs = [
        spot_usd(h, 1.0, interruptions_per_hour=r, checkpoint_hours=saving, restart_hours=restart)
        for h, r in ((low, few), (high, many))
    ]
    assert costs[0] <= costs[1] * (1 + 1e-9)
    assert costs[0] >= low * (1 - 1e-12)


def test_nothing_interrupts_and_nothing_is_lost() -> None:
    assert hours_per_useful_hour(0.0, 0.1, 0.1) == 1.0
    assert hours_per_useful_hour(0.1, 0.0, 0.0) == 1.0


def _simulate_run_hours(
    useful_hours: float,
    *,
    interruptions_per_hour: float,
    checkpoint_hours: float,
    restart_hours: float,
    interval_hours: float,
    seed: int,
) -> tuple[float, int]:
    """Play one run through, interruption by interruption; return its hours and its interruptions.

    An interruption may also hit a checkpoint or a restart.
    """
    rng = np.random.default_rng(seed)
    clock, saved, interruptions = 0.0, 0.0, 0
    next_hit = rng.exponential(1 / interruptions_per_hour)
    ready = 0.0  # when the job works again
    while saved < useful_hours:
        work = min(interval_hours, useful_hours - saved)
        end = ready + work + checkpoint_hours
        if next_hit < end:
            interruptions += 1
            clock = next_hit
            ready = clock + restart_hours
            next_hit = clock + rng.exponential(1 / interruptions_per_hour)
        else:
            saved, clock, ready = saved + work, end, end
    return clock, interruptions


@pytest.mark.parametrize(
    ("mean", "checkpoint", "restart", "interval"),
    [
        (3.1, 3 / 3600, 600 / 3600, None),  # Llama 3 on 16,384 GPUs
        (20.0, 2 / 60, 10 / 60, None),  # one spot instance
        (1.0, 3 / 60, 10 / 60, None),  # interruptions often hit checkpoints and restarts
        (5.0, 1 / 60, 5 / 60, 2.0),  # an interval that is far too long
    ],
)
def test_a_simulation_agrees_with_the_formula_within_one_percent(
    mean: float, checkpoint: float, restart: float, interval: float | None
) -> None:
    every = interval or float(daly_interval_hours(checkpoint, 1 / mean))
    useful = 4000 * mean  # thousands of interruptions
    hours, hits = _simulate_run_hours(
        useful, interruptions_per_hour=1 / mean, checkpoint_hours=checkpoint,
        restart_hours=restart, interval_hours=every, seed=7,
    )  # fmt: skip
    formula = float(hours_per_useful_hour(1 / mean, checkpoint, restart, every))
    assert hours / useful == pytest.approx(formula, rel=0.01)
    assert hits == pytest.approx(hours / mean, rel=0.05)


def test_the_second_order_term_beats_youngs_interval_if_checkpoints_are_slow() -> None:
    mean, checkpoint = 2.0, 0.5
    young, daly = (
        find(checkpoint, 1 / mean) for find in (young_interval_hours, daly_interval_hours)
    )
    assert hours_per_useful_hour(1 / mean, checkpoint, 0.1, daly) < hours_per_useful_hour(
        1 / mean, checkpoint, 0.1, young
    )


def test_llama_3_had_over_90_percent_effective_training_time() -> None:
    # arXiv 2407.21783, sections 3.3.1 and 3.3.4: 16,384 H100, 2 TB/s of storage, over 90% of the time effective
    mean = find_failures(gpus().get("h100-sxm5-80gb")).divide(16_384)
    checkpoint = 405e9 * 14 / 2e12
    lost = compute_goodput(mean, checkpoint_seconds=checkpoint, restart_seconds=600)
    assert 0.90 < lost.share < 0.95
    assert lost.low < lost.share < lost.high


def test_rates_of_failures_and_spot_add_up() -> None:
    both = MeanTime(10, 5, 20, "a").join(MeanTime(30, 15, 60, "b"))
    assert both.hours == pytest.approx(7.5)
    assert both.low == pytest.approx(3.75)
    assert both.high == pytest.approx(15)
    assert MeanTime(10, 5, 20, "a").divide(4).hours == 2.5


@given(st.floats(1, 1e5), st.floats(1, 3600), st.floats(1, 3600), st.floats(1.01, 10))
def test_goodput_is_a_share_that_falls_with_every_loss(
    hours: float, checkpoint: float, restart: float, worse: float
) -> None:
    def share(h: float, c: float, r: float) -> float:
        return compute_goodput(MeanTime(h, h, h, ""), checkpoint_seconds=c, restart_seconds=r).share

    best = share(hours, checkpoint, restart)
    assert 0 < best < 1
    assert share(hours / worse, checkpoint, restart) < best
    assert share(hours, checkpoint * worse, restart) < best
    assert share(hours, checkpoint, restart * worse) < best


def test_an_architecture_without_publications_gets_all_of_them_and_says_so() -> None:
    hopper, volta = (find_failures(gpus().get(n)) for n in ("h100-sxm5-80gb", "v100-sxm2-16gb"))
    assert hopper.hours == pytest.approx(54 * 24 * 16_384 / 419, rel=1e-3)
    assert "Volta" in volta.basis
    assert "Hopper" not in hopper.basis
    published = [row.gpu_hours for row in interruptions() if row.gpu_hours]
    assert volta.hours == pytest.approx(float(np.exp(np.mean(np.log(published)))))
    assert volta.low < min(published)
    assert max(published) < volta.high


def test_a_published_spot_rate_is_the_lower_end() -> None:
    known, unknown = (
        find_spot_interruptions(find_price(name)) for name in ("aws/p5.48xlarge", "gcp/H100x8")
    )
    assert known.high == pytest.approx(730.5 / -math.log(0.85))
    assert known.low == unknown.hours == 20
    assert known.low < known.hours < known.high
    assert "assumed" in unknown.basis
