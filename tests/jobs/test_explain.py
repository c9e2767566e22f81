"""When a job will start, why not now, and how likely it is to be in time."""

import json
from dataclasses import replace
from random import Random

import pytest

from gpuyard.errors import UserMistake
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.explain import explain
from gpuyard.jobs.forecast import drawn_times, forecast
from gpuyard.jobs.policies import POLICIES, JobView, Pool, policy_of
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork

HOUR = 3600.0
SURE = Curve.of_points({1: 1.0, 8: 8.0})
UNSURE = Curve.of_points({1: 1.0, 8: 8.0}, low=0.8, high=1.1)
FIFO = policy_of("fifo")


def job(id_: str, hours: float, gpus: int = 1, **more: object) -> JobView:
    """That many hours on the GPUs it asks for."""
    more = {"curve": SURE, "least_gpus": gpus, "most_gpus": gpus, **more}
    work = hours * HOUR * gpus
    return JobView(id_, remaining_work=work, asked_gpus=gpus, **more)  # type: ignore[arg-type]


def running(view: JobView) -> JobView:
    return replace(view, allocation=((0, view.asked_gpus),), started_s=0.0)


BUSY = [
    running(job("local://1", 2, 4, user="ann")),
    running(job("local://2", 3, 4, user="bob")),
    job("local://3", 1, 2, user="cy", submitted_s=1.0),
    job("local://4", 1, 8, user="dee", submitted_s=2.0, deadline_s=5 * HOUR),
]
EIGHT = Pool.uniform(1, 8)


def test_a_waiting_job_is_told_who_is_in_its_way_and_when_it_starts() -> None:
    told = explain("local://4", BUSY, EIGHT, FIFO, now_s=0.0)
    assert told.sentences == (
        "It needs 8 GPUs, and none of 8 is free.",
        "It waits for the end of local://1 of ann on 4 GPUs (in 2 h) and local://2 of bob on 4 GPUs (in 3 h).",
        "local://3 of cy starts before it.",
        "The policy is fifo: first come, first served, with the GPUs asked for.",
        "It will start in 3 h, on 8 GPUs.",
        "It will end in 4 h.",
        "It will almost certainly meet its deadline (in 5 h).",
        "This holds if no other job is submitted.",
    )
    assert told.start is not None
    assert told.start.expected_s == pytest.approx(3 * HOUR)
    assert told.deadline_probability == 1.0
    document = told.document()
    json.dumps(document)
    assert document["start"]["expected_s"] == pytest.approx(3 * HOUR)


def test_free_gpus_that_a_policy_leaves_to_others_are_said() -> None:
    jobs = [running(job("held", 2, 4)), job("wide", 1, 8), job("small", 1, 2, submitted_s=1.0)]
    told = explain("small", jobs, EIGHT, FIFO, now_s=10.0)
    assert (
        told.reasons[0] == "It needs 2 GPUs, and 4 of 8 are free, but fifo leaves them to others."
    )
    assert "wide starts before it." in told.reasons


def test_a_job_whose_turn_it_is_and_one_that_runs() -> None:
    alone = explain("one", [job("one", 2)], EIGHT, FIFO, now_s=0.0)
    assert alone.sentences == (
        "It is its turn: it starts on 1 GPU now.",
        "It will end in 2 h.",
        "This holds if no other job is submitted.",
    )
    told = explain("local://1", BUSY, EIGHT, FIFO, now_s=0.0, say=lambda s: f"at {s / HOUR:.0f}:00")
    assert told.sentences[:2] == ("It runs on 4 GPUs.", "It will end at 2:00.")
    assert told.runs
    assert told.start is None


def test_a_job_that_can_t_start_here_is_told_so() -> None:
    told = explain("big", [job("big", 1, 8, deadline_s=-HOUR)], Pool.uniform(1, 4), FIFO, now_s=0.0)
    assert told.sentences == (
        "It needs 8 GPUs, and there are 4 here.",
        "As things are, it will not start.",
        "It will almost certainly miss its deadline (1 h ago).",
    )
    assert told.gpus is None
    assert told.deadline_probability == 0.0


def test_an_unknown_job_is_a_mistake() -> None:
    with pytest.raises(UserMistake, match="no job 'local://9' waits or runs"):
        explain("local://9", BUSY, EIGHT, FIFO, now_s=0.0)


@pytest.mark.parametrize(
    ("deadline_hours", "probability"), [(10, 0.5), (10 / 0.8, 0.95), (10 / 1.1, 0.05), (20, 1.0)]
)
def test_the_probability_is_that_of_the_curve_s_interval(
    deadline_hours: float, probability: float
) -> None:
    one = job("one", 10, curve=UNSURE, deadline_s=deadline_hours * HOUR)
    told = explain("one", [one], EIGHT, FIFO, now_s=0.0)
    assert told.deadline_probability == pytest.approx(probability, abs=0.04)
    assert told.end is not None
    assert told.end.low_s == pytest.approx(10 * HOUR / 1.1, rel=0.03)
    assert told.end.high_s == pytest.approx(10 * HOUR / 0.8, rel=0.03)
    if probability == 0.95:
        assert any("with a probability of 9" in sentence for sentence in told.prospects)


def test_a_job_behind_an_unsure_one_is_unsure_itself() -> None:
    jobs = [running(job("first", 10, 8, curve=UNSURE)), job("second", 1, 8, deadline_s=11 * HOUR)]
    told = explain("second", jobs, EIGHT, FIFO, now_s=0.0)
    assert told.start is not None
    assert told.start.low_s < 9.5 * HOUR < 11 * HOUR < told.start.high_s
    assert told.deadline_probability == pytest.approx(0.5, abs=0.06)


def test_the_interval_of_a_job_that_is_resized_is_around_what_is_expected() -> None:
    elastic = {"least_gpus": 1, "most_gpus": 8, "elastic": True, "restart_s": 60.0}
    curve = Curve.of_points({1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5}, low=0.8, high=1.25)
    jobs = [job(f"job-{n}", 1 + n / 3, 4, **elastic, curve=curve) for n in range(12)]
    told = explain("job-9", jobs, EIGHT, policy_of("min-time"), now_s=0.0)
    found = forecast(jobs, EIGHT, policy_of("min-time"), 0.0, "job-9")
    drawn = drawn_times(found, jobs, EIGHT, "job-9").ends_s
    assert sum(stay.job == "job-9" for stay in found.stays) > 1, "it should be resized"
    assert told.end is not None
    assert float((drawn <= told.end.expected_s).mean()) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("name", ["fifo", "fair-share", "shortest-first", "max-jobs"])
@pytest.mark.parametrize("seed", range(5))
def test_a_forecast_is_what_the_simulator_would_do(name: str, seed: int) -> None:
    chance = Random(seed)
    views = [
        job(
            f"job-{n}",
            chance.uniform(0.5, 5),
            chance.choice((1, 2, 4)),
            user=chance.choice("ab"),
            restart_s=chance.choice((0.0, 600.0)),
        )
        for n in range(7)
    ]
    trace = Trace(
        "now",
        tuple(
            TraceJob(
                view.id, 0.0, SteadyWork(view.remaining_work, view.curve), view.asked_gpus,
                view.asked_gpus, view.asked_gpus, user=view.user, restart_s=view.restart_s,
            )
            for view in views
        ),
    )  # fmt: skip
    pool = Pool.uniform(1, 4)
    outcome = simulate(trace, policy_of(name), pool)
    last = views[int(outcome.ended_s.argmax())].id
    found = forecast(views, pool, policy_of(name), 0.0, last)
    assert [found.ends[view.id] for view in views] == pytest.approx(list(outcome.ended_s))
    replayed = drawn_times(found, views, pool, last)
    assert replayed.ends_s == pytest.approx([outcome.ended_s.max()])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_can_be_forecast(name: str) -> None:
    elastic = {"least_gpus": 1, "most_gpus": 8, "elastic": True, "restart_s": 30.0, "curve": UNSURE}
    jobs = [
        running(job("a", 3, 4, **elastic)),
        job("b", 1, 4, **elastic),
        job("c", 2, 4, **elastic),
    ]
    told = explain("c", jobs, Pool.uniform(1, 4), policy_of(name), now_s=1e9)
    assert told.end is not None
    assert 1e9 < told.end.low_s < told.end.expected_s < told.end.high_s < 1e9 + 12 * HOUR
