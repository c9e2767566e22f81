"""What one call of `gpuyard.step()` costs a training loop: in a job that reports to a file, and outside of one."""

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
for call in (lambda samples: None, step):  # the first round makes the reporter, and is not counted
    call(samples=64)
best = []
for call in (lambda samples: None, step):
    began = time.perf_counter()
    for _ in range({CALLS}):
        call(samples=64)
    best.append((time.perf_counter() - began) / {CALLS})
print(best[1] - best[0])
"""


def seconds_a_call(environment: dict[str, str]) -> float:
    """Beside a call of nothing, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")
    } | {"PYTHONPATH": os.pathsep.join(sys.path)}
    inside, outside = [], []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(ROUNDS):
            file = Path(directory) / str(number)
            inside.append(seconds_a_call({**plain, "GPUYARD_STEPS": str(file)}))
            outside.append(seconds_a_call(plain))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import gpuyard; gpuyard.step()"], env=plain, check=True)
    whole = time.perf_counter() - began
    print(f"in a job {min(inside) * 1e6:.2f} µs, outside {min(outside) * 1e6:.2f} µs a call")
    print(f"a Python that imports it and ends: {whole * 1e3:.0f} ms")
    document = {
        "name": "step",
        "value": min(inside) * 1e6,
        "unit": "µs a call",
        "outside": max(0.0, min(outside)) * 1e6,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
