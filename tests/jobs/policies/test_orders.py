"""shortest-first, fair-share and explore-then-focus."""

from dataclasses import replace

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import JobView, Pool, policy_of
from gpuyard.jobs.policies.explore_then_focus import ExploreThenFocus

LINEAR = Curve.of_points({1: 1.0, 16: 16.0})


def job(id_: str, work: float = 100.0, gpus: int = 1, **more: object) -> JobView:
    return JobView(id_, LINEAR, work, gpus, most_gpus=16, **more)  # type: ignore[arg-type]


def running(view: JobView, gpus: int) -> JobView:
    return replace(view, allocation=((0, gpus),), started_s=0.0)


def test_the_shortest_goes_first_and_a_wide_one_is_passed_by() -> None:
    jobs = [job("long", 300), job("short", 100), job("wide", 640, gpus=4)]
    given = policy_of("shortest-first").allocate(jobs, Pool.uniform(1, 2), 0.0)
    assert given == {"short": 1, "long": 1}


def test_a_shorter_job_stops_a_longer_one_if_that_can_go_on_and_it_is_worth_the_restart() -> None:
    policy, pool = policy_of("shortest-first"), Pool.uniform(1, 1)
    long = running(job("long", 1000, elastic=True, restart_s=30), 1)
    short = job("short", 500, restart_s=30)
    assert policy.allocate([long, short], pool, 0.0) == {"short": 1}
    assert policy.allocate([replace(long, elastic=False), short], pool, 0.0) == {"long": 1}
    nearly = replace(long, remaining_work=550.0)
    assert policy.allocate([nearly, short], pool, 0.0) == {"long": 1}


def test_a_higher_priority_comes_before_a_shorter_job() -> None:
    jobs = [job("short", 10), job("urgent", 1000, priority=1)]
    assert policy_of("shortest-first").allocate(jobs, Pool.uniform(1, 1), 0.0) == {"urgent": 1}


def test_users_take_turns_whoever_has_more_jobs() -> None:
    many = [job(f"ann-{n}", user="ann", submitted_s=n) for n in range(6)]
    few = [job(f"bob-{n}", user="bob", submitted_s=100 + n) for n in range(2)]
    given = policy_of("fair-share").allocate([*many, *few], Pool.uniform(1, 4), 200.0)
    assert set(given) == {"ann-0", "ann-1", "bob-0", "bob-1"}


def test_what_a_user_holds_already_counts_and_weight_doubles_a_share() -> None:
    policy, pool = policy_of("fair-share"), Pool.uniform(1, 6)
    held = running(job("held", gpus=3, user="ann"), 3)
    waiting = [job(f"ann-{n}", user="ann") for n in range(3)]
    others = [job(f"bob-{n}", user="bob", submitted_s=9) for n in range(5)]
    given = policy.allocate([held, *waiting, *others], pool, 10.0)
    assert set(given) == {"held", "bob-0", "bob-1", "bob-2"}
    heavy = [replace(view, weight=2.0) for view in others]
    given = policy.allocate([*waiting, *heavy], pool, 10.0)
    assert sum(id_.startswith("bob") for id_ in given) == 4
    assert sum(id_.startswith("ann") for id_ in given) == 2


def test_every_trial_is_tried_before_any_gets_more() -> None:
    trials = [job(f"trial-{n}", elastic=True, submitted_s=n) for n in range(6)]
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate(trials, Pool.uniform(1, 4), 10.0) == {f"trial-{n}": 1 for n in range(4)}
    tried = [replace(view, attained_gpu_s=50.0, score=0.5) for view in trials[:4]]
    given = policy.allocate([*tried, *trials[4:]], Pool.uniform(1, 4), 20.0)
    assert given["trial-4"] == given["trial-5"] == 1
    assert sum(given.values()) == 4


def test_then_all_gpus_go_to_the_best_by_score() -> None:
    trials = [
        job(f"trial-{n}", elastic=True, attained_gpu_s=60.0, score=score)
        for n, score in enumerate((0.3, 0.9, None))
    ]
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate(trials, Pool.uniform(1, 8), 0.0) == {"trial-1": 8}
    assert policy.allocate(trials, Pool.uniform(1, 20), 0.0) == {"trial-1": 16, "trial-0": 4}


def test_few_trials_share_the_gpus_that_would_be_idle() -> None:
    trials = [job(f"trial-{n}", elastic=True) for n in range(3)]
    given = ExploreThenFocus().allocate(trials, Pool.uniform(1, 16), 0.0)
    assert given == {"trial-0": 4, "trial-1": 4, "trial-2": 4}


def test_the_best_is_not_moved_where_the_restart_costs_more_than_it_saves() -> None:
    nearly = job("best", 40, elastic=True, attained_gpu_s=60.0, score=1.0, restart_s=30)
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate([running(nearly, 4)], Pool.uniform(1, 8), 0.0) == {"best": 4}
    much = replace(nearly, remaining_work=4000.0)
    assert policy.allocate([running(much, 4)], Pool.uniform(1, 8), 0.0) == {"best": 8}
