"""shortest-first, fair-share, and explore-then-focus."""

from dataclasses import replace

from gpuyard.policies import JobView, Pool, get_policy
from gpuyard.policies.curve import Curve
from gpuyard.policies.explore_then_focus import ExploreThenFocus

LINEAR = Curve.from_points({1: 1.0, 16: 16.0})


def job(id_: str, work: float = 100.0, gpus: int = 1, **more: object) -> JobView:
    return JobView(id_, LINEAR, work, gpus, max_gpus=16, **more)  # type: ignore[arg-type]


def running(view: JobView, gpus: int) -> JobView:
    return replace(view, allocation=((0, gpus),), started_s=0.0)


def test_the_shortest_is_first_and_a_wide_one_is_skipped() -> None:
    jobs = [job("long", 300), job("short", 100), job("wide", 640, gpus=4)]
    allocated = get_policy("shortest-first").allocate(jobs, Pool.uniform(1, 2), 0.0)
    assert allocated == {"short": 1, "long": 1}


def test_a_shorter_job_stops_a_resumable_longer_one_if_that_is_worth_the_restart() -> None:
    policy, pool = get_policy("shortest-first"), Pool.uniform(1, 1)
    long = running(job("long", 1000, elastic=True, restart_s=30), 1)
    short = job("short", 500, restart_s=30)
    assert policy.allocate([long, short], pool, 0.0) == {"short": 1}
    assert policy.allocate([replace(long, elastic=False), short], pool, 0.0) == {"long": 1}
    nearly = replace(long, remaining_work=550.0)
    assert policy.allocate([nearly, short], pool, 0.0) == {"long": 1}


def test_a_higher_priority_comes_before_a_shorter_job() -> None:
    jobs = [job("short", 10), job("urgent", 1000, priority=1)]
    assert get_policy("shortest-first").allocate(jobs, Pool.uniform(1, 1), 0.0) == {"urgent": 1}


def test_users_take_turns_however_many_jobs_they_have() -> None:
    many = [job(f"ann-{n}", user="ann", submitted_s=n) for n in range(6)]
    few = [job(f"bob-{n}", user="bob", submitted_s=100 + n) for n in range(2)]
    allocated = get_policy("fair-share").allocate([*many, *few], Pool.uniform(1, 4), 200.0)
    assert set(allocated) == {"ann-0", "ann-1", "bob-0", "bob-1"}


def test_held_gpus_count_and_a_weight_of_two_doubles_the_share() -> None:
    policy, pool = get_policy("fair-share"), Pool.uniform(1, 6)
    held = running(job("held", gpus=3, user="ann"), 3)
    waiting = [job(f"ann-{n}", user="ann") for n in range(3)]
    others = [job(f"bob-{n}", user="bob", submitted_s=9) for n in range(5)]
    allocated = policy.allocate([held, *waiting, *others], pool, 10.0)
    assert set(allocated) == {"held", "bob-0", "bob-1", "bob-2"}
    heavy = [replace(view, weight=2.0) for view in others]
    allocated = policy.allocate([*waiting, *heavy], pool, 10.0)
    assert sum(id_.startswith("bob") for id_ in allocated) == 4
    assert sum(id_.startswith("ann") for id_ in allocated) == 2


def test_every_trial_is_explored_before_any_gets_more() -> None:
    trials = [job(f"trial-{n}", elastic=True, submitted_s=n) for n in range(6)]
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate(trials, Pool.uniform(1, 4), 10.0) == {f"trial-{n}": 1 for n in range(4)}
    explored = [replace(view, attained_gpu_s=50.0, score=0.5) for view in trials[:4]]
    allocated = policy.allocate([*explored, *trials[4:]], Pool.uniform(1, 4), 20.0)
    assert allocated["trial-4"] == allocated["trial-5"] == 1
    assert sum(allocated.values()) == 4


def test_after_exploring_all_gpus_go_to_the_best_by_score() -> None:
    trials = [
        job(f"trial-{n}", elastic=True, attained_gpu_s=60.0, score=score)
        for n, score in enumerate((0.3, 0.9, None))
    ]
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate(trials, Pool.uniform(1, 8), 0.0) == {"trial-1": 8}
    assert policy.allocate(trials, Pool.uniform(1, 20), 0.0) == {"trial-1": 16, "trial-0": 4}


def test_a_few_trials_share_gpus_that_would_be_idle() -> None:
    trials = [job(f"trial-{n}", elastic=True) for n in range(3)]
    allocated = ExploreThenFocus().allocate(trials, Pool.uniform(1, 16), 0.0)
    assert allocated == {"trial-0": 4, "trial-1": 4, "trial-2": 4}


def test_the_best_is_not_moved_if_the_restart_costs_more_than_it_saves() -> None:
    nearly = job("best", 40, elastic=True, attained_gpu_s=60.0, score=1.0, restart_s=30)
    policy = ExploreThenFocus(explore_gpu_s=50)
    assert policy.allocate([running(nearly, 4)], Pool.uniform(1, 8), 0.0) == {"best": 4}
    longer = replace(nearly, remaining_work=4000.0)
    assert policy.allocate([running(longer, 4)], Pool.uniform(1, 8), 0.0) == {"best": 8}
