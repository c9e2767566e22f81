"""Measure the seconds to simulate the 160 jobs of the Pollux paper's workload 6 under min-time on one core.

If the Philly trace is available (bench_simulate.py PHILLY.csv), its 82,247 jobs are simulated under fifo and fair-share.
"""

import json
import os
import sys
import time
from pathlib import Path

from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.policies import Pool, get_policy

ROOT = Path(__file__).parents[1]
WORKLOAD = ROOT / "examples/traces/pollux/workload-6.csv"
PHILLY = ROOT / "../shared/traces/philly.csv"
ROUNDS = 3
POLICIES = ("min-time", "tiresias", "optimus")


def time_simulation(trace: Trace, policy: str, pool: Pool) -> tuple[float, float]:
    start = time.perf_counter()
    outcome = simulate(trace, get_policy(policy), pool)
    return time.perf_counter() - start, float(outcome.completion_seconds.mean())


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    trace = read_trace(WORKLOAD)
    print(f"read workload 6 with its measurements: {time.perf_counter() - start:.2f} s")
    seconds_by_policy: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for _ in range(ROUNDS):
        for policy in POLICIES:
            seconds, mean = time_simulation(trace, policy, Pool.uniform(16, 4))
            seconds_by_policy[policy].append(seconds)
            if len(seconds_by_policy[policy]) == ROUNDS:
                best = min(seconds_by_policy[policy])
                print(f"{policy}: {best:.3f} s (best of {ROUNDS}), mean completion {mean:,.0f} s")
    philly = Path(sys.argv[1]) if len(sys.argv) > 1 else PHILLY
    if philly.is_file():
        start = time.perf_counter()
        jobs = read_trace(philly, "philly")
        print(f"read {len(jobs.jobs):,} jobs of Philly: {time.perf_counter() - start:.1f} s")
        for policy in ("fifo", "fair-share"):
            seconds, mean = time_simulation(jobs, policy, Pool.uniform(64, 8))
            print(f"Philly under {policy}: {seconds:.1f} s, mean completion {mean:,.0f} s")
    value = min(seconds_by_policy["min-time"])
    print(json.dumps({"name": "bench_simulate", "value": value, "unit": "s"}))


if __name__ == "__main__":
    main()
