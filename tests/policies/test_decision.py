"""Which jobs start, which are stopped to continue with another number of GPUs, and for whom GPUs are withheld."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.policies import POLICIES, JobView, Policy, Pool, get_policy
from gpuyard.policies.curve import Curve
from gpuyard.policies.decision import choose_resizes, decide

FIFO, MIN_TIME = get_policy("fifo"), get_policy("min-time")
LINEAR = Curve(np.arange(9.0))


def job(number: int, gpus: int | None = None, **more: Any) -> JobView:
    """Return a job that requests 2 GPUs; with `gpus`, it runs on that many."""
    plain = JobView(
        str(number), LINEAR, 3600.0, requested_gpus=2, min_gpus=2, max_gpus=2, submitted_s=number
    )
    return replace(plain, allocation=None if gpus is None else ((0, gpus),), **more)


def elastic(number: int, gpus: int | None = None, **more: Any) -> JobView:
    changed = {"requested_gpus": 8, "min_gpus": 1, "max_gpus": 8, "elastic": True, **more}
    return job(number, gpus, **changed)


def test_jobs_start_in_order_while_gpus_are_free() -> None:
    assert decide([job(1, 2), job(2), job(3), job(4)], FIFO, Pool((6,)), 0).starts == {
        "2": 2,
        "3": 2,
    }


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_job_with_a_range_starts_on_the_gpus_that_others_leave(policy: Policy) -> None:
    decision = decide([job(1, 4), elastic(2, elastic=False)], policy, Pool((8,)), 0)
    gpus = 1 if policy.name == "optimus" else 4  # Optimus grows only jobs that can be resized
    assert (decision.starts, decision.withheld_for) == ({"2": gpus}, None)


def test_a_job_gets_what_it_requests_even_if_a_later_one_does_not_fit() -> None:
    first = elastic(1, elastic=False, requested_gpus=4)
    assert decide([first, job(2)], FIFO, Pool((5,)), 0).starts == {"1": 4}


def test_a_running_job_keeps_its_gpus_until_it_is_stopped() -> None:
    assert decide([elastic(1, 8), job(2)], MIN_TIME, Pool((8,)), 0).starts == {}


def test_a_job_grows_if_that_gains_more_than_the_restart_costs() -> None:
    assert choose_resizes([elastic(1, 4, restart_s=30.0)], MIN_TIME, Pool((8,)), 0) == {"1": 8}
    late = elastic(1, 4, restart_s=30.0, remaining_work=8.0)  # 2 s remain
    assert choose_resizes([late], MIN_TIME, Pool((8,)), 0) == {}
    assert choose_resizes([elastic(1, 4, restart_s=500.0)], FIFO, Pool((8,)), 0) == {}


def test_a_rigid_job_is_never_stopped() -> None:
    assert choose_resizes([elastic(1, 4, elastic=False)], MIN_TIME, Pool((8,)), 0) == {}


def test_a_job_shrinks_for_a_short_one() -> None:
    jobs = [elastic(1, 8, remaining_work=1e6), job(2, remaining_work=10.0)]
    assert 0 < choose_resizes(jobs, MIN_TIME, Pool((8,)), 0)["1"] <= 6


def test_fifo_names_the_job_for_which_it_leaves_gpus_idle() -> None:
    large = job(2, min_gpus=8, max_gpus=8, requested_gpus=8)
    decision = decide([job(1, 2), large, job(3)], FIFO, Pool((8,)), 0)
    assert (decision.starts, decision.withheld_for, decision.withheld_gpus) == ({}, "2", 6)


def test_max_jobs_names_the_job_whose_deadline_needs_the_idle_gpus() -> None:
    due: dict[str, Any] = {"deadline_s": 1000.0, "weight": 100.0}
    large = job(2, min_gpus=8, max_gpus=8, requested_gpus=8, remaining_work=8 * 900.0, **due)
    running = job(1, 6, remaining_work=6 * 90.0)
    small = job(3, remaining_work=2 * 5000.0)
    decision = decide([running, large, small], get_policy("max-jobs"), Pool((8,)), 0)
    assert (decision.starts, decision.withheld_for) == ({}, "2")


def test_fair_share_is_between_people() -> None:
    busy = [job(n, 2, user="ann") for n in range(2)]
    waiting = [job(n, user="ann") for n in range(2, 6)] + [job(9, user="bob")]
    decision = decide([*busy, *waiting], get_policy("fair-share"), Pool((6,)), 0)
    assert decision.starts == {"9": 2}


def test_an_overdue_job_comes_first_under_every_policy() -> None:
    large = job(1, min_gpus=8, max_gpus=8, requested_gpus=8)
    short = job(2, remaining_work=1.0)
    for policy in POLICIES.values():
        waits = decide([job(0, 2), large, short], policy, Pool((8,)), 0, overdue="1")
        assert (waits.starts, waits.withheld_for, waits.withheld_gpus) == ({}, "1", 6)
        assert decide([large, short], policy, Pool((8,)), 0, overdue="1").starts == {"1": 8}


@st.composite
def _states(draw: st.DrawFn) -> tuple[list[JobView], int]:
    gpus = draw(st.integers(1, 8))
    free, jobs = gpus, []
    for number in range(draw(st.integers(1, 7))):
        least = draw(st.integers(1, gpus))
        most = draw(st.integers(least, gpus))
        view = JobView(
            str(number),
            LINEAR,
            draw(st.floats(1.0, 1e6)),
            requested_gpus=draw(st.integers(least, most)),
            min_gpus=least,
            max_gpus=most,
            submitted_s=number,
            user=draw(st.sampled_from(["ann", "bob", "eve"])),
            deadline_s=draw(st.none() | st.floats(1.0, 1e6)),
            priority=draw(st.integers(-1, 1)),
            elastic=draw(st.booleans()),
            restart_s=draw(st.sampled_from([0.0, 30.0])),
        )
        held = draw(st.integers(least, most))
        if held <= free and draw(st.booleans()):
            view, free = replace(view, allocation=((0, held),), started_s=0.0), free - held
        jobs.append(view)
    return jobs, gpus


@settings(max_examples=25)
@given(_states(), st.sampled_from(list(POLICIES.values())))
def test_no_gpu_is_given_twice_or_idle_for_no_reason(
    state: tuple[list[JobView], int], policy: Policy
) -> None:
    jobs, gpus = state
    free = gpus - sum(view.gpus for view in jobs)
    waiting = {view.id: view for view in jobs if not view.running}
    decision = decide(jobs, policy, Pool((gpus,)), 0.0)
    assert sum(decision.starts.values()) <= free
    for id_, count in decision.starts.items():
        assert waiting[id_].min_gpus <= count <= waiting[id_].max_gpus
    idle = free - sum(decision.starts.values())
    fitting = [v for v in waiting.values() if v.id not in decision.starts and v.min_gpus <= idle]
    assert not fitting or decision.withheld_for in waiting
    if decision.withheld_for is not None:
        assert decision.withheld_for not in decision.starts
        assert (decision.withheld_gpus, idle) == (idle, decision.withheld_gpus)


@settings(max_examples=25)
@given(_states(), st.sampled_from(list(POLICIES.values())))
def test_every_waiting_job_starts_in_the_end(
    state: tuple[list[JobView], int], policy: Policy
) -> None:
    jobs, gpus = state
    now = 0.0
    for _ in range(2 * len(jobs) + 1):
        starts = decide(jobs, policy, Pool((gpus,)), now).starts
        jobs = [
            replace(view, allocation=((0, starts[view.id]),)) if view.id in starts else view
            for view in jobs
        ]
        running = [view for view in jobs if view.running]
        assert running, [view.id for view in jobs]
        now += 1.0
        jobs = [view for view in jobs if view is not running[0]]
        if not jobs:
            return
    raise AssertionError(f"{[view.id for view in jobs]} never started")
