"""Measure what `batches()`, `exchange()`, and `step()` add to a training step, as a share of a 20 ms step."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS, ROUNDS, STEP_SECONDS, LIMIT = 50_000, 5, 0.02, 0.005
LOOP = f"""
import gpuyard, time
def plain():
    for _ in range({CALLS}):
        pass
def timed():
    for _ in gpuyard.batches(range({CALLS})):
        with gpuyard.exchange():
            pass
        gpuyard.step(samples=64)
timed()
start = time.perf_counter(); plain(); middle = time.perf_counter(); timed()
print(((time.perf_counter() - middle) - (middle - start)) / {CALLS})
"""


def main() -> None:
    best = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(ROUNDS):
            environment = {
                **os.environ,
                "GPUYARD_STEPS": str(Path(directory) / str(number)),
                "PYTHONPATH": os.pathsep.join(sys.path),
            }
            finished = subprocess.run(
                [sys.executable, "-c", LOOP],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            best.append(float(finished.stdout))
    share = min(best) / STEP_SECONDS
    print(f"{min(best) * 1e6:.2f} µs per step, {share:.3%} of a 20 ms step (limit {LIMIT:.1%})")
    print(json.dumps({"name": "phases", "value": share, "unit": "share of a 20 ms step"}))
    sys.exit(0 if share < LIMIT else 1)


if __name__ == "__main__":
    main()
