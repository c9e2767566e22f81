"""The event loop, with cases that are calculated by hand."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.simulate import loop
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.outcome import GpuInterval, SimulationOutcome
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import PhasedWork, SteadyWork
from gpuyard.policies import POLICIES, JobView, Policy, Pool, get_policy, min_time
from gpuyard.policies.curve import Curve


def rigid(name: str, submitted_s: float, seconds: float, gpus: int, **more: object) -> TraceJob:
    work = SteadyWork(seconds, Curve.rigid(gpus))
    return TraceJob(name, submitted_s, work, gpus, gpus, gpus, **more)  # type: ignore[arg-type]


def run(jobs: Sequence[TraceJob], policy: Policy, pool: Pool) -> SimulationOutcome:
    return simulate(Trace("by hand", tuple(jobs)), policy, pool)


def test_fifo_by_hand() -> None:
    jobs = [
        rigid("a", 0, 100, 2, deadline_s=100.0),
        rigid("b", 10, 50, 2, deadline_s=140.0),
        rigid("c", 20, 30, 1),
    ]
    outcome = run(jobs, get_policy("fifo"), Pool.uniform(1, 3))
    assert outcome.started_s.tolist() == [0, 100, 100], "c waits behind b although it would fit"
    assert outcome.ended_s.tolist() == [100, 150, 130]
    assert outcome.makespan_seconds == 150
    assert (outcome.deadlines, outcome.deadlines_met) == (2, 1)
    assert outcome.gpu_hours == pytest.approx((200 + 100 + 30) / 3600)
    assert outcome.utilization == pytest.approx(330 / 450)
    figures = outcome.as_json()
    assert figures["mean_completion_seconds"] == pytest.approx((100 + 140 + 110) / 3)
    assert figures["median_completion_seconds"] == 110
    assert figures["mean_wait_seconds"] == pytest.approx((0 + 90 + 80) / 3)
    assert outcome.intervals == (
        GpuInterval(0, 2, 0, 100),
        GpuInterval(1, 2, 100, 150),
        GpuInterval(2, 1, 100, 130),
    )


class Halves(Policy):
    """Gives all GPUs to the first job and, from the 60th second on, half to the second."""

    name = "halves"
    summary = ""

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        if now_s < 60 or len(jobs) == 1:
            return {jobs[0].id: 4}
        return {job.id: 2 for job in jobs}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_new_job_starts_at_once_on_idle_gpus(policy: Policy) -> None:
    jobs = [TraceJob(str(n), 7.0 * n, SteadyWork(10.0, Curve.rigid(2)), 2, 2, 2) for n in range(4)]
    outcome = simulate(Trace("four", tuple(jobs)), policy, Pool((8,)))
    assert outcome.started_s.tolist() == [0, 7, 14, 21]
    assert outcome.ended_s.tolist() == [10, 17, 24, 31]


def test_rounds_and_restarts_by_hand() -> None:
    curve = Curve(np.array([0.0, 1, 2, 3, 4]))
    jobs = [
        TraceJob(name, 1.0, SteadyWork(600.0, curve), max_gpus=4, elastic=True, restart_s=30.0)
        for name in "ab"
    ]
    outcome = run(jobs, Halves(), Pool.uniform(1, 4))
    # a: starts at 1, works from 31 with 4; at 61 moved, 120 done; from 91 with 2, 480 left: until 331
    # b: starts at 61, works from 91 with 2 until 331, 480 done; the others are free then, but the next round is at 361
    assert outcome.started_s.tolist() == [1, 61]
    assert outcome.ended_s[0] == pytest.approx(331)
    assert outcome.restarts.tolist() == [1, 1]
    # at the round of 361 it has done 540; moved to 4 GPUs it works again at 391, 60 left
    assert outcome.ended_s[1] == pytest.approx(406)
    assert outcome.gpu_seconds.tolist() == pytest.approx([60 * 4 + 270 * 2, 300 * 2 + 45 * 4])


class InGeneralLoop(Policy):
    """Another policy, in the loop for policies that may move jobs."""

    summary = ""
    round_s = None
    only_on_change = True

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name  # type: ignore[misc]

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        return self.policy.allocate(jobs, pool, now_s)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["fifo", "fair-share"])
def test_the_queue_loop_and_the_general_loop_agree(name: str, seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(rng.uniform(0, 5000) for _ in range(80))
    jobs = [
        rigid(
            f"job-{n}",
            t,
            rng.uniform(1, 900),
            rng.choice((1, 1, 2, 4, 8)),
            user=rng.choice("aaab"),
        )
        for n, t in enumerate(times)
    ]
    pool = Pool.uniform(3, 4)
    queue, general = (
        run(jobs, get_policy(name), pool),
        run(jobs, InGeneralLoop(get_policy(name)), pool),
    )
    assert queue.started_s.tolist() == pytest.approx(general.started_s.tolist())
    assert queue.ended_s.tolist() == pytest.approx(general.ended_s.tolist())


@pytest.mark.parametrize("name", ["shortest-first", "tiresias", "optimus", "min-time"])
def test_a_long_history_uses_queues_with_the_same_outcome(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    jobs = [
        rigid(
            f"job-{n}",
            50.0 * n,
            rng.uniform(100, 3000),
            rng.choice((1, 1, 2, 4, 8)),
            priority=rng.choice((0, 0, 1)),
        )
        for n in range(150)
    ]
    pool = Pool.uniform(3, 4)
    monkeypatch.setattr(min_time, "_MAX_BRUTE_FORCE", 0)  # it is only used if few jobs wait
    general = run(jobs, get_policy(name), pool)
    monkeypatch.setattr(loop, "_LONG_HISTORY", 100)
    queues = run(jobs, get_policy(name), pool)
    assert queues.policy == name
    assert queues.decisions != general.decisions, "the queue loop must have run"
    assert queues.started_s.tolist() == pytest.approx(general.started_s.tolist())
    elastic = [replace(job, elastic=True) for job in jobs]
    assert run(elastic, get_policy(name), pool).decisions != queues.decisions, (
        "elastic jobs can be stopped"
    )


@pytest.mark.parametrize("name", ["fifo", "tiresias", "optimus", "min-time"])
def test_no_gpu_is_used_twice_and_every_job_ends(name: str) -> None:
    rng = random.Random(1)
    jobs = []
    for n in range(40):
        curve = Curve.from_points({1: 1.0, 8: rng.uniform(2, 8)})
        work = SteadyWork(rng.uniform(100, 5000), curve)
        jobs.append(
            TraceJob(
                f"job-{n}",
                40.0 * n,
                work,
                rng.randrange(1, 9),
                1,
                8,
                elastic=True,
                restart_s=30.0,
            )
        )
    pool = Pool.uniform(4, 4)
    outcome = run(jobs, get_policy(name), pool)
    assert not np.isnan(outcome.ended_s).any()
    changes = sorted(
        (t, g) for s in outcome.intervals for t, g in ((s.begin_s, s.gpus), (s.end_s, -s.gpus))
    )
    assert max(np.cumsum([gpus for _, gpus in changes])) <= pool.gpus
    held = sum(s.gpus * (s.end_s - s.begin_s) for s in outcome.intervals)
    assert outcome.gpu_hours * 3600 == pytest.approx(held)


def test_times_count_from_the_first_submission() -> None:
    jobs = [rigid(f"job-{n:03}", 1000, 10 * (n + 1), 1) for n in range(100)]
    outcome = run(jobs, get_policy("fifo"), Pool.uniform(100, 1))
    assert outcome.makespan_seconds == 1000
    assert outcome.utilization == pytest.approx(10 * 5050 / 100_000)
    assert outcome.as_json()["p99_completion_seconds"] == pytest.approx(990.1)


def test_steady_work_stops_at_its_total() -> None:
    work = SteadyWork(100.0, Curve(np.array([0.0, 2.0])))
    assert work.after(0, (1,), 20) == 40
    assert work.after(40, (1,), 1000) == 100
    assert work.seconds(0, ()) == float("inf")


def test_phased_work_continues_in_its_phase() -> None:
    ends = np.array([100.0, 300.0])
    packed = np.array([[0.0, 1, 2], [0.0, 2, 4]])
    work = PhasedWork(ends, packed, lambda shape: packed[:, sum(shape)])
    assert work.total == 300
    assert work.seconds(0, (1,)) == 200
    assert work.seconds(50, (2,)) == 25 + 50
    assert work.after(0, (1,), 150) == 200
    assert work.after(200, (2,), 1000) == 300
    assert work.curve(99).speed(1) == 1
    assert work.curve(100).speed(1) == 2
    assert work.curve(300).speed(1) == 2


class Nothing(Policy):
    name = "nothing"
    summary = ""

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        return {}


def test_a_policy_that_starts_no_job_is_reported() -> None:
    with pytest.raises(GpuyardError, match=r"nothing .*: a"):
        run([rigid("a", 0, 1, 1)], Nothing(), Pool.uniform(1, 4))


def test_a_job_with_too_much_work_is_named_before_billions_of_rounds() -> None:
    jobs = [rigid("a", 0, 1, 1), rigid("slip", 0, 1e14, 1)]
    with pytest.raises(UserMistake, match=r"'slip' .* too many rounds for tiresias"):
        run(jobs, get_policy("tiresias"), Pool.uniform(1, 4))
    assert run(jobs, get_policy("fifo"), Pool.uniform(1, 4)).ended_s[1] == 1e14


def test_a_job_larger_than_the_cluster_is_rejected() -> None:
    with pytest.raises(UserMistake, match=r"'a' needs 8 GPUs.*4"):
        run([rigid("a", 0, 1, 8)], get_policy("fifo"), Pool.uniform(1, 4))
