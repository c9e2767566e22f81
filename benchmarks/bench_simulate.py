"""Seconds on one core to simulate the 160 jobs of the Pollux paper's workload 6 under min-time, and, where the table is
at hand (bench_simulate.py PHILLY.csv), the 82,247 jobs of Philly under fifo and fair-share."""

import json
import os
import sys
import time
from pathlib import Path

from gpuyard.jobs.policies import Pool, policy_of
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace
from gpuyard.jobs.simulate.traces import read_trace

ROOT = Path(__file__).parents[1]
WORKLOAD = ROOT / "examples/traces/pollux/workload-6.csv"
PHILLY = ROOT / "../shared/traces/philly.csv"
ROUNDS = 3
POLICIES = ("min-time", "tiresias", "optimus")


def seconds_of(trace: Trace, policy: str, pool: Pool) -> tuple[float, float]:
    start = time.perf_counter()
    outcome = simulate(trace, policy_of(policy), pool)
    return time.perf_counter() - start, float(outcome.completion_seconds.mean())


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    trace = read_trace(WORKLOAD)
    print(f"read workload 6 with its measurements: {time.perf_counter() - start:.2f} s")
    taken: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for _ in range(ROUNDS):
        for policy in POLICIES:
            seconds, mean = seconds_of(trace, policy, Pool.uniform(16, 4))
            taken[policy].append(seconds)
            if len(taken[policy]) == ROUNDS:
                best = min(taken[policy])
                print(f"{policy}: {best:.3f} s (best of {ROUNDS}), mean completion {mean:,.0f} s")
    philly = Path(sys.argv[1]) if len(sys.argv) > 1 else PHILLY
    if philly.is_file():
        start = time.perf_counter()
        jobs = read_trace(philly, "philly")
        print(f"read {len(jobs.jobs):,} jobs of Philly: {time.perf_counter() - start:.1f} s")
        for policy in ("fifo", "fair-share"):
            seconds, mean = seconds_of(jobs, policy, Pool.uniform(64, 8))
            print(f"Philly under {policy}: {seconds:.1f} s, mean completion {mean:,.0f} s")
    value = min(taken["min-time"])
    print(json.dumps({"name": "bench_simulate", "value": value, "unit": "s"}))


if __name__ == "__main__":
    main()
