"""What gpuyard's measuring costs: its samples/s over those of a bare script, same model and cores.

The two alternate, the order changes every round, and the median ratio counts: 1 is no overhead.
"""

import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.specs import Dataset, Workload

WORKERS, BATCH, SECONDS, BUDGET_SECONDS = 2, 50, 2.5, 52.0
BARE = Path(__file__).with_name("bare_ddp.py")


def with_gpuyard(store: ResultsStore) -> float:
    workload = Workload(
        name="spoken-digits-linear",
        model="gpuyard.workloads.spoken_digits:linear",
        dataset=Dataset(samples=2000),
    )
    sweep = plan_sweep(workload, [WORKERS], [BATCH], seconds_per_point=SECONDS)
    # the bare ranks have one core each, and so must these
    one_core_each = tuple(cores[:1] for cores in sweep.cores_by_worker)
    sweep = dataclasses.replace(sweep, cores_by_worker=one_core_each)
    (measurement,) = run_sweep(sweep, store, fresh=True)
    return measurement.samples_per_second


def with_bare_script(steps: int) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(BARE), *map(str, (rank, WORKERS, BATCH, steps, port))],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        for rank in range(WORKERS)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    return float(said[0])


def main() -> None:
    began = time.monotonic()
    ratios: list[float] = []
    speeds: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        store = ResultsStore(Path(directory) / "results.sqlite")
        longest = 0.0
        while time.monotonic() - began + longest < BUDGET_SECONDS:
            round_began = time.monotonic()
            # as many steps as gpuyard's synchronised windows take
            steps = 20 if not speeds else max(10, int(SECONDS / 2 * speeds[-1][0] / 100))
            if len(ratios) % 2:
                bare, ours = with_bare_script(steps), with_gpuyard(store)
            else:
                ours, bare = with_gpuyard(store), with_bare_script(steps)
            ratios.append(ours / bare)
            speeds.append((ours, bare))
            longest = max(longest, time.monotonic() - round_began)
            print(f"gpuyard {ours:8.1f} samples/s, bare {bare:8.1f}, ratio {ours / bare:.3f}")
    print(
        json.dumps(
            {
                "name": "bench_overhead",
                "value": round(statistics.median(ratios), 4),
                "unit": "ratio",
                "better": "higher",
                "rounds": len(ratios),
                "ratios": [round(ratio, 4) for ratio in ratios],
                "gpuyard_samples_per_second": round(statistics.median(o for o, _ in speeds), 1),
                "bare_samples_per_second": round(statistics.median(b for _, b in speeds), 1),
                "workers": WORKERS,
                "batch_per_worker": BATCH,
            }
        )
    )


if __name__ == "__main__":
    main()
