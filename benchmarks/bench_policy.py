"""Measure the seconds that each policy needs for one decision about 1,000 jobs on 1,000 GPUs.

Half of the jobs run, a third have deadlines, and most could use more GPUs than they have. The value is that of the slowest
policy.
"""

import json
import os
import random
import statistics
import time
from dataclasses import replace

from gpuyard.policies import POLICIES, JobView, Pool
from gpuyard.policies.curve import Curve
from gpuyard.policies.max_jobs import MaxJobs

JOBS, MACHINES, GPUS_PER_MACHINE, ROUNDS = 1000, 125, 8, 3
NOW_S = 100_000.0


def build_queue(seed: int) -> list[JobView]:
    """Build jobs like those of a large team: most are small, some are very long, and few scale well."""
    rng = random.Random(seed)
    jobs: list[JobView] = []
    free = [GPUS_PER_MACHINE] * MACHINES
    for number in range(JOBS):
        gpus = rng.choice((1, 1, 1, 2, 2, 4, 8))
        max_gpus = rng.choice((8, 16, 64))
        exponent = rng.uniform(0.5, 0.98)
        points = {n: n**exponent for n in (1, 2, 4, 8, 16, 32, 64) if n <= max_gpus}
        hours = rng.lognormvariate(2.6, 1.2)
        submitted = NOW_S - rng.uniform(0, 50_000)
        job = JobView(
            f"job-{number}",
            Curve.from_points(points, low=0.9, high=1.1),
            remaining_work=hours * 3600,
            requested_gpus=gpus,
            max_gpus=max_gpus,
            submitted_s=submitted,
            user=f"user-{rng.randrange(40)}",
            deadline_s=NOW_S + rng.uniform(1, 24) * 3600 if rng.random() < 1 / 3 else None,
            weight=rng.choice((1.0, 1.0, 1.0, 2.0, 5.0)),
            elastic=rng.random() < 0.8,
            restart_s=30.0,
        )
        machine = max(range(MACHINES), key=free.__getitem__)
        if number % 2 and free[machine] >= gpus:
            free[machine] -= gpus
            job = replace(
                job,
                allocation=((machine, gpus),),
                started_s=submitted,
                attained_gpu_s=gpus * (NOW_S - submitted),
            )
        jobs.append(job)
    return jobs


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pool = Pool.uniform(MACHINES, GPUS_PER_MACHINE)
    queues = [build_queue(seed) for seed in range(ROUNDS)]
    seconds: dict[str, list[float]] = {name: [] for name in POLICIES}
    for jobs in queues:  # alternate, so that all policies see the same machine
        for name, policy in POLICIES.items():
            start = time.perf_counter()
            allocation = policy.allocate(jobs, pool, NOW_S)
            seconds[name].append(time.perf_counter() - start)
            assert sum(allocation.values()) <= pool.gpus
    for name, measured in seconds.items():
        print(f"{name:<20} {statistics.median(measured):.3f} s")
    packing = MaxJobs().plan(queues[0], pool, NOW_S).packing
    print(f"max-jobs is at most {packing.gap:.2%} below the best possible plan")
    slowest = max(seconds, key=lambda name: statistics.median(seconds[name]))
    value = statistics.median(seconds[slowest])
    print(json.dumps({"name": "bench_policy", "value": value, "unit": "s", "policy": slowest}))


if __name__ == "__main__":
    main()
