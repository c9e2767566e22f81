"""Measure configurations predicted per second on one core, and the time of one prediction on the command line.

The sweep has a million configurations of ResNet-50: numbers of GPUs, batches, link rates, precisions, and strategies.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from itertools import product

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.predictor import STRATEGIES, Scenario
from gpuyard.predictor.compute import ComputeLines, roofline
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.platform import Fleet
from gpuyard.predictor.table import HardwareRates, chunks, compute_step_parts
from gpuyard.predictor.transport import MachineLinks, Networks
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


def predict_sweep() -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the samples per second of every combination."""
    profile, gpu = models().get("resnet50"), gpus().get("a100-sxm4-80gb")
    inside = MachineLinks.from_topology(gpu, 8, "nvswitch").pipe(8)
    nodes, rates = (axis.ravel() for axis in np.meshgrid(NODES, LINK_BYTES_PER_SECOND))
    ones = np.ones_like(nodes)
    rdma = Networks(rates, np.inf * ones, np.nan * ones, np.zeros(len(nodes), dtype=bool), ones)
    links = HardwareRates(
        inside.bytes_per_second * ones,
        inside.latency_seconds * ones,
        *rdma.exchange_rates(nodes, load_tuning()),
    )
    fleet = Fleet(nodes, 8 * ones, links)
    placement = np.repeat(np.arange(len(nodes)), len(BATCHES))
    batch = np.tile(BATCHES, len(nodes))
    results = []
    for strategy, precision in product(COMPARED, PRECISIONS):
        line = roofline(profile, gpu, precision)
        scenario = Scenario(
            Workload(name="bench", model="resnet50", precision=precision),
            profile,
            fleet,
            ComputeLines(line.fixed_seconds * ones, line.seconds_per_sample * ones),
            STRATEGIES[strategy],
        )
        for part in chunks(len(placement)):
            table = scenario.build_table(fleet.select_rows(placement[part], batch[part]))
            results.append(table.gpus * batch[part] / compute_step_parts(table).step_seconds)
    return np.concatenate(results)


def measure_command_seconds() -> float:
    """Time whole Python processes; the first run, which may compile bytecode, does not count."""
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
    print(f"gpuyard {' '.join(COMMAND)}: {measure_command_seconds():.2f} s (median of {COMMANDS})")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    predict_sweep()  # load imports, files, and caches before the timer starts
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        rates = predict_sweep()
        seconds.append(time.perf_counter() - start)
    rows = len(rates)
    print(f"{rows:,} configurations in {min(seconds):.3f} s (best of {ROUNDS})")
    value = rows / min(seconds)
    print(json.dumps({"name": "bench_predict", "value": value, "unit": "configurations/s"}))


if __name__ == "__main__":
    main()
