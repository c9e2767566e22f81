"""Explanations: why a job waits, when it will start, and how likely it is to meet its deadline."""

import json
from dataclasses import replace
from random import Random

import pytest

from gpuyard.errors import UserMistake
from gpuyard.jobs.explain import explain
from gpuyard.jobs.forecast import forecast, sample_times
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies import POLICIES, JobView, Pool, get_policy
from gpuyard.policies.curve import Curve

HOUR = 3600.0
CERTAIN = Curve.from_points({1: 1.0, 8: 8.0})
UNCERTAIN = Curve.from_points({1: 1.0, 8: 8.0}, low=0.8, high=1.1)
FIFO = get_policy("fifo")


def job(id_: str, hours: float, gpus: int = 1, **more: object) -> JobView:
    """Create a job that takes that many hours on the GPUs it requests."""
    more = {"curve": CERTAIN, "min_gpus": gpus, "max_gpus": gpus, **more}
    work = hours * HOUR * gpus
    return JobView(id_, remaining_work=work, requested_gpus=gpus, **more)  # type: ignore[arg-type]


def running(view: JobView) -> JobView:
    return replace(view, allocation=((0, view.requested_gpus),), started_s=0.0)


BUSY = [
    running(job("local://1", 2, 4, user="ann")),
    running(job("local://2", 3, 4, user="bob")),
    job("local://3", 1, 2, user="cy", submitted_s=1.0),
    job("local://4", 1, 8, user="dee", submitted_s=2.0, deadline_s=5 * HOUR),
]
EIGHT = Pool.uniform(1, 8)


def test_the_explanation_names_the_jobs_before_this_one_and_its_start() -> None:
    explanation = explain("local://4", BUSY, EIGHT, FIFO, now_s=0.0)
    assert explanation.sentences == (
        "It needs 8 GPUs, and none of 8 is free.",
        "It waits for the end of local://1 of ann on 4 GPUs (in 2 h) and local://2 of bob on 4 GPUs (in 3 h).",
        "local://3 of cy starts before it.",
        "The policy is fifo: first come, first served, with the requested GPUs.",
        "It will start in 3 h, on 8 GPUs.",
        "It will end in 4 h.",
        "It will almost certainly meet its deadline (in 5 h).",
        "This holds if no other job is submitted.",
    )
    assert explanation.start is not None
    assert explanation.start.expected_s == pytest.approx(3 * HOUR)
    assert explanation.deadline_probability == 1.0
    document = explanation.document()
    json.dumps(document)
    assert document["start"]["expected_s"] == pytest.approx(3 * HOUR)


def test_the_explanation_mentions_free_gpus_that_the_policy_leaves_to_others() -> None:
    jobs = [running(job("held", 2, 4)), job("wide", 1, 8), job("small", 1, 2, submitted_s=1.0)]
    explanation = explain("small", jobs, EIGHT, FIFO, now_s=10.0)
    assert (
        explanation.reasons[0]
        == "It needs 2 GPUs, and 4 of 8 are free, but fifo leaves them to others."
    )
    assert "wide starts before it." in explanation.reasons


def test_a_job_that_starts_now_and_one_that_runs() -> None:
    alone = explain("only", [job("only", 2)], EIGHT, FIFO, now_s=0.0)
    assert alone.sentences == (
        "It is its turn: it starts on 1 GPU now.",
        "It will end in 2 h.",
        "This holds if no other job is submitted.",
    )
    explanation = explain(
        "local://1", BUSY, EIGHT, FIFO, now_s=0.0, format_time=lambda s: f"at {s / HOUR:.0f}:00"
    )
    assert explanation.sentences[:2] == ("It runs on 4 GPUs.", "It will end at 2:00.")
    assert explanation.runs
    assert explanation.start is None


def test_a_job_that_cannot_start_here() -> None:
    explanation = explain(
        "big", [job("big", 1, 8, deadline_s=-HOUR)], Pool.uniform(1, 4), FIFO, now_s=0.0
    )
    assert explanation.sentences == (
        "It needs 8 GPUs, and there are 4 here.",
        "As things are, it will not start.",
        "It will almost certainly miss its deadline (1 h ago).",
    )
    assert explanation.gpus is None
    assert explanation.deadline_probability == 0.0


def test_an_assumed_length_makes_no_deadline_certain() -> None:
    """Neither that of the job itself nor that of a job before it; a deadline in the past is missed in any case."""
    for assumed in ("local://4", "local://2", "local://3"):
        explanation = explain("local://4", BUSY, EIGHT, FIFO, now_s=0.0, assumed={assumed})
        (deadline,) = [s for s in explanation.sentences if "deadline" in s]
        assert "meet" in deadline and "assumed" in deadline and "certain" not in deadline
        assert explanation.end is not None and explanation.end.low_s is None
        assert not any("probability" in sentence for sentence in explanation.sentences)
        assert explanation.deadline_probability is None
    late = replace(BUSY[3], deadline_s=3.5 * HOUR)
    missed = explain("local://4", [*BUSY[:3], late], EIGHT, FIFO, now_s=0.0, assumed={"local://1"})
    assert any("miss" in s and "assumed" in s for s in missed.sentences)
    over = replace(BUSY[3], deadline_s=-HOUR)
    past = explain("local://4", [*BUSY[:3], over], EIGHT, FIFO, now_s=0.0, assumed={"local://4"})
    assert past.deadline_probability == 0.0
    first = replace(BUSY[0], deadline_s=5 * HOUR)
    alone = explain("local://1", [first, *BUSY[1:]], EIGHT, FIFO, now_s=0.0, assumed={"local://4"})
    assert alone.deadline_probability == 1.0, "it runs, and nothing before it is assumed"


def test_an_unknown_job_is_a_mistake() -> None:
    with pytest.raises(UserMistake, match="no job 'local://9' waits or runs"):
        explain("local://9", BUSY, EIGHT, FIFO, now_s=0.0)


@pytest.mark.parametrize(
    ("deadline_hours", "probability"), [(10, 0.5), (10 / 0.8, 0.95), (10 / 1.1, 0.05), (20, 1.0)]
)
def test_the_probability_follows_from_the_curve_s_interval(
    deadline_hours: float, probability: float
) -> None:
    view = job("only", 10, curve=UNCERTAIN, deadline_s=deadline_hours * HOUR)
    explanation = explain("only", [view], EIGHT, FIFO, now_s=0.0)
    assert explanation.deadline_probability == pytest.approx(probability, abs=0.04)
    assert explanation.end is not None
    assert explanation.end.low_s == pytest.approx(10 * HOUR / 1.1, rel=0.03)
    assert explanation.end.high_s == pytest.approx(10 * HOUR / 0.8, rel=0.03)
    if probability == 0.95:
        assert any("with a probability of 9" in sentence for sentence in explanation.prospects)


def test_a_job_behind_an_uncertain_one_is_uncertain_itself() -> None:
    jobs = [
        running(job("first", 10, 8, curve=UNCERTAIN)),
        job("second", 1, 8, deadline_s=11 * HOUR),
    ]
    explanation = explain("second", jobs, EIGHT, FIFO, now_s=0.0)
    assert explanation.start is not None
    assert explanation.start.low_s is not None
    assert explanation.start.high_s is not None
    assert explanation.start.low_s < 9.5 * HOUR < 11 * HOUR < explanation.start.high_s
    assert explanation.deadline_probability == pytest.approx(0.5, abs=0.06)


def test_the_interval_of_a_resized_job_contains_the_expected_end() -> None:
    elastic = {"min_gpus": 1, "max_gpus": 8, "elastic": True, "restart_s": 60.0}
    curve = Curve.from_points({1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5}, low=0.8, high=1.25)
    jobs = [job(f"job-{n}", 1 + n / 3, 4, **elastic, curve=curve) for n in range(12)]
    explanation = explain("job-9", jobs, EIGHT, get_policy("min-time"), now_s=0.0)
    outlook = forecast(jobs, EIGHT, get_policy("min-time"), 0.0, "job-9")
    sampled = sample_times(outlook, jobs, EIGHT, "job-9").ends_s
    assert sum(interval.job == "job-9" for interval in outlook.intervals) > 1, (
        "it should be resized"
    )
    assert explanation.end is not None
    assert float((sampled <= explanation.end.expected_s).mean()) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("name", ["fifo", "fair-share", "shortest-first", "max-jobs"])
@pytest.mark.parametrize("seed", range(5))
def test_a_forecast_agrees_with_the_simulator(name: str, seed: int) -> None:
    rng = Random(seed)
    views = [
        job(
            f"job-{n}",
            rng.uniform(0.5, 5),
            rng.choice((1, 2, 4)),
            user=rng.choice("ab"),
            restart_s=rng.choice((0.0, 600.0)),
        )
        for n in range(7)
    ]
    trace = Trace(
        "now",
        tuple(
            TraceJob(
                view.id, 0.0, SteadyWork(view.remaining_work, view.curve), view.requested_gpus,
                view.requested_gpus, view.requested_gpus, user=view.user, restart_s=view.restart_s,
            )
            for view in views
        ),
    )  # fmt: skip
    pool = Pool.uniform(1, 4)
    outcome = simulate(trace, get_policy(name), pool)
    last = views[int(outcome.ended_s.argmax())].id
    outlook = forecast(views, pool, get_policy(name), 0.0, last)
    assert [outlook.ends[view.id] for view in views] == pytest.approx(list(outcome.ended_s))
    replayed = sample_times(outlook, views, pool, last)
    assert replayed.ends_s == pytest.approx([outcome.ended_s.max()])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_can_be_forecast(name: str) -> None:
    elastic = {"min_gpus": 1, "max_gpus": 8, "elastic": True, "restart_s": 30.0, "curve": UNCERTAIN}
    jobs = [
        running(job("a", 3, 4, **elastic)),
        job("b", 1, 4, **elastic),
        job("c", 2, 4, **elastic),
    ]
    explanation = explain("c", jobs, Pool.uniform(1, 4), get_policy(name), now_s=1e9)
    assert explanation.end is not None
    assert explanation.end.low_s is not None
    assert explanation.end.high_s is not None
    assert (
        1e9
        < explanation.end.low_s
        < explanation.end.expected_s
        < explanation.end.high_s
        < 1e9 + 12 * HOUR
    )
