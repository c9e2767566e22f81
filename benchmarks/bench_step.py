"""Measure the time of one `gpuyard.step()` call in a training loop, inside a job that reports to a file and outside a job."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALLS, ROUNDS = 200_000, 7
LOOP = f"""
import gpuyard, time
step = gpuyard.step
for call in (lambda samples: None, step):  # the first round creates the reporter and does not count
    call(samples=64)
best = []
for call in (lambda samples: None, step):
    start = time.perf_counter()
    for _ in range({CALLS}):
        call(samples=64)
    best.append((time.perf_counter() - start) / {CALLS})
print(best[1] - best[0])
"""


def measure_seconds_per_call(environment: dict[str, str]) -> float:
    """Measure in a separate process, minus the time of an empty call."""
    finished = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment, capture_output=True, text=True, check=True
    )
    return float(finished.stdout)


def main() -> None:
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")
    } | {"PYTHONPATH": os.pathsep.join(sys.path)}
    inside, outside = [], []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(ROUNDS):
            file = Path(directory) / str(number)
            inside.append(measure_seconds_per_call({**plain, "GPUYARD_STEPS": str(file)}))
            outside.append(measure_seconds_per_call(plain))
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import gpuyard; gpuyard.step()"], env=plain, check=True)
    process_seconds = time.perf_counter() - start
    print(f"in a job {min(inside) * 1e6:.2f} µs, outside {min(outside) * 1e6:.2f} µs per call")
    print(f"a Python process that imports it and exits: {process_seconds * 1e3:.0f} ms")
    document = {
        "name": "step",
        "value": min(inside) * 1e6,
        "unit": "µs a call",
        "outside": max(0.0, min(outside)) * 1e6,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
