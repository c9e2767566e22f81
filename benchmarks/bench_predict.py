"""Configurations predicted a second on one core: a sweep of a million over numbers of GPUs, batches,
link rates, precisions and strategies of ResNet-50; and how long one prediction takes on the command line."""

import json
import os
import statistics
import subprocess
import sys
import time
from itertools import product

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.predict import STRATEGIES, Scenario
from gpuyard.predict.compute import ComputeLines, roofline
from gpuyard.predict.constants import fitted
from gpuyard.predict.platform import Fleet
from gpuyard.predict.table import HardwareRates, chunks, step_parts
from gpuyard.predict.transport import InMachine, Networks
from gpuyard.specs import Precision, Workload

ROUNDS = 3
COMMANDS = 9
COMMAND = ("predict", "resnet50", "--on", "dgx-1-v100", "--gpus", "8", "--batch", "64")
# 20 × 20 × 280 × 3 × 3 = 1,008,000 configurations of 8 × A100 machines
NODES = np.arange(1.0, 21.0)
BATCHES = np.arange(8.0, 168.0, 8.0)
LINK_BYTES_PER_SECOND = np.geomspace(1.25e8, 1e11, 280)
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16")
COMPARED = ("ddp", "horovod", "parameter-server")


def sweep() -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Samples a second of every combination."""
    profile, gpu = models().get("resnet50"), gpus().get("a100-sxm4-80gb")
    inside = InMachine.of(gpu, 8, "nvswitch").pipe(8)
    nodes, rates = (axis.ravel() for axis in np.meshgrid(NODES, LINK_BYTES_PER_SECOND))
    alike = np.ones_like(nodes)
    rdma = Networks(rates, np.inf * alike, np.nan * alike, np.zeros(len(nodes), dtype=bool))
    links = HardwareRates(
        inside.bytes_per_second * alike,
        inside.latency_seconds * alike,
        *rdma.between(nodes, fitted()),
    )
    fleet = Fleet(nodes, 8 * alike, links)
    spot = np.repeat(np.arange(len(nodes)), len(BATCHES))
    batch = np.tile(BATCHES, len(nodes))
    found = []
    for strategy, precision in product(COMPARED, PRECISIONS):
        line = roofline(profile, gpu, precision)
        scenario = Scenario(
            Workload(name="bench", model="resnet50", precision=precision),
            profile,
            fleet,
            ComputeLines(line.fixed_seconds * alike, line.seconds_per_sample * alike),
            STRATEGIES[strategy],
        )
        for part in chunks(len(spot)):
            table = scenario.table(fleet.rows(spot[part], batch[part]))
            found.append(table.gpus * batch[part] / step_parts(table).step_seconds)
    return np.concatenate(found)


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
    sweep()  # imports, files and caches are not what is timed
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = sweep()
        seconds.append(time.perf_counter() - start)
    rows = len(found)
    print(f"{rows:,} configurations in {min(seconds):.3f} s (best of {ROUNDS})")
    value = rows / min(seconds)
    print(json.dumps({"name": "bench_predict", "value": value, "unit": "configurations/s"}))


if __name__ == "__main__":
    main()
