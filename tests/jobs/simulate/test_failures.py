"""Failures of machines in a simulation: they are the same for all policies, and cost what they should."""

import json

import numpy as np
import pytest

from gpuyard.jobs.simulate.failures import FailureModel
from gpuyard.jobs.simulate.loop import EventLoop, simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies import Pool, get_policy
from gpuyard.policies.curve import Curve
from tests.conftest import Cli

HOUR = 3600.0
POOL = Pool.uniform(2, 4)


def create_trace(count: int = 6, hours: float = 50.0) -> Trace:
    work = SteadyWork(hours * 4, Curve(np.arange(9.0) / HOUR))
    jobs = tuple(
        TraceJob(str(i), i * HOUR, work, requested_gpus=4, min_gpus=4, max_gpus=4)
        for i in range(count)
    )
    return Trace("t", jobs)


def test_failures_depend_only_on_the_seed() -> None:
    first, again, other = (FailureModel(100, seed) for seed in (1, 1, 2))
    times = [model.next_failure(((0, 4),), POOL, 0.0) for model in (first, again, other)]
    assert times[0] == times[1] != times[2]
    later = first.next_failure(((0, 4),), POOL, times[0])
    assert later > times[0]
    assert first.next_failure(((0, 4),), POOL, 0.0) == times[0]  # whatever was asked before


def test_the_rate_is_that_of_the_machines_gpus() -> None:
    model, now, count = FailureModel(100, 3), 0.0, 0
    while now < 100_000 * HOUR:
        now = model.next_failure(((1, 2),), POOL, now)
        count += 1
    assert count == pytest.approx(100_000 / (100 / 4), rel=0.1)


@pytest.mark.parametrize("policy", ["fifo", "min-time"])
def test_failures_delay_jobs_by_what_they_lose(policy: str) -> None:
    trace = create_trace()
    calm = simulate(trace, get_policy(policy), POOL)
    rough = simulate(trace, get_policy(policy), POOL, failures=FailureModel(100, 5))
    assert calm.failures == 0
    assert rough.failures > 3
    extra = rough.gpu_hours - calm.gpu_hours
    assert extra * 3600 == pytest.approx(rough.lost_gpu_seconds, rel=1e-6)
    # at most a checkpoint interval and a restart each
    assert rough.lost_gpu_seconds <= rough.failures * 4 * (1800 + 600) + 1e-6
    assert rough.lost_gpu_seconds >= rough.failures * 4 * 600 - 1e-6


def test_both_loops_agree() -> None:
    trace = create_trace()
    queue = simulate(trace, get_policy("fifo"), POOL, failures=FailureModel(100, 5))
    events = EventLoop(trace, get_policy("fifo"), POOL, failures=FailureModel(100, 5)).run()
    assert queue.failures == events.failures
    np.testing.assert_allclose(queue.ended_s, events.ended_s)


def test_the_command(cli: Cli) -> None:
    command = ("simulate", "examples/traces/team.csv", "--on", "2x4", "--failures", "40 h")
    once, again, other = (
        json.loads(cli(*command, "--seed", seed, "--json").stdout) for seed in ("1", "1", "4")
    )
    assert once == again != other
    assert once["policies"][0]["failures"] > 0
    assert "GPU-hours" in cli(*command, "--seed", "1").stdout
    published = ("simulate", "examples/traces/team.csv", "--on", "2x4", "--failures", "published")
    assert json.loads(cli(*published, "--json").stdout)["policies"][0]["failures"] == 0


def test_mistakes(cli: Cli) -> None:
    command = ("simulate", "examples/traces/team.csv", "--on", "2x4")
    assert "50000 h" in cli(*command, "--failures", "often", status=2).stderr
    assert "--failures" in cli(*command, "--checkpoint-every", "1 h", status=2).stderr
