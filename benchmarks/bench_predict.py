"""Configurations predicted a second on one core: a sweep of a million over numbers of GPUs, batches,
link rates, precisions and strategies of ResNet-50; and how long one prediction takes on the command line."""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from gpuyard.predict.sweep import Sweep, sweep

ROUNDS = 3
COMMANDS = 9
COMMAND = ("predict", "resnet50", "--on", "dgx-1-v100", "--gpus", "8", "--batch", "64")


def question() -> Sweep:
    """20 × 20 × 280 × 3 × 3 = 1,008,000 configurations."""
    return Sweep(
        model="resnet50",
        gpu="a100-sxm4-80gb",
        gpus_per_node=8,
        topology="nvswitch",
        nodes=tuple(range(1, 21)),
        batches=tuple(range(8, 168, 8)),
        link_bytes_per_second=tuple(np.geomspace(1.25e8, 1e11, 280).tolist()),
        precisions=("fp32", "tf32", "fp16"),
        strategies=("ddp", "horovod", "parameter-server"),
    )


def command_seconds() -> float:
    """From the start of Python to its end; the first run, which may compile, is not counted."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    seconds = []
    for _ in range(1 + COMMANDS):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "gpuyard", *COMMAND],
            stdout=subprocess.DEVNULL,
            env=environment,
            check=True,
        )
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> None:
    print(f"gpuyard {' '.join(COMMAND)}: {command_seconds():.2f} s (median of {COMMANDS})")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asked = question()
    sweep(asked)  # imports, files and caches are not what is timed
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = sweep(asked)
        seconds.append(time.perf_counter() - start)
    rows = len(found.samples_per_second)
    print(f"{rows:,} configurations in {min(seconds):.3f} s (best of {ROUNDS})")
    value = rows / min(seconds)
    print(json.dumps({"name": "bench_predict", "value": value, "unit": "configurations/s"}))


if __name__ == "__main__":
    main()
