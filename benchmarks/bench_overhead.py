"""Measure the overhead of gpuyard's measurements: its samples/s over those of a bare loop with the same model and cores.

The two alternate about every second inside the same rank processes, and their order changes every round. The median ratio
counts, so a drift in the machine's speed affects both. 1 means no overhead.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORKERS, BATCH, BUDGET_SECONDS = 2, 50, 40
RANK = Path(__file__).with_name("overhead_rank.py")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    str(RANK),
                    *map(str, (rank, WORKERS, BATCH, directory, BUDGET_SECONDS)),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            )
            for rank in range(WORKERS)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("a rank failed; its output is above")
    rounds = [tuple(map(float, line.split())) for line in outputs[0].splitlines()]
    ratios = [bare / ours for ours, bare in rounds]
    print(
        json.dumps(
            {
                "name": "bench_overhead",
                "value": round(statistics.median(ratios), 4),
                "unit": "ratio",
                "better": "higher",
                "rounds": len(rounds),
                "ratios": [round(ratio, 3) for ratio in ratios],
                "gpuyard_samples_per_second": _compute_samples_per_second(
                    [ours for ours, _ in rounds]
                ),
                "bare_samples_per_second": _compute_samples_per_second(
                    [bare for _, bare in rounds]
                ),
                "workers": WORKERS,
                "batch_per_worker": BATCH,
            }
        )
    )


def _compute_samples_per_second(step_seconds: list[float]) -> float:
    return round(WORKERS * BATCH / statistics.median(step_seconds), 1)


if __name__ == "__main__":
    main()
