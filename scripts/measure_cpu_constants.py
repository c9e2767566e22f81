"""Measure the predictor's defaults for CPU ranks and the host time of DataParallel.

    python scripts/measure_cpu_constants.py    # takes minutes; needs an idle machine with at least two cores

Writes `tests/data/cpu_constants.json`; a test compares `predictor/constants.py` and `predictor/calibration/defaults.py` with it.
`gpuyard calibrate` replaces all but the last with values from the user's machine.

link, hop            all-reduces of 16 MB and 1 KB between two gloo ranks on this machine
overlap              1 − exposed / bare all-reduce time, for two training ranks
variation            relative deviation of the time for the same matrix product while another core computes it too
data_parallel_host   Python time to copy a module to a GPU, per replica and layer
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import torch
from torch import nn

from gpuyard.files import write_text
from gpuyard.workloads.zoo.resnet import resnet50

OUTPUT = Path(__file__).parent.parent / "tests/data/cpu_constants.json"
TRAINED = (("spoken-digits-linear", 50), ("spoken-digits-linear", 200), ("resnet18", 4))
BENCHES = 5
STEPS = 200
REPLICAS = 200


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        benches = [
            run_bench(
                home, "collectives", "--workers", "2", "--bytes", "1KB,16MB", "--repeats", "50"
            )
            for _ in range(BENCHES)
        ]
        runs = [
            run_bench(
                home,
                "train",
                name,
                "--workers",
                "2",
                "--batch",
                str(batch),
                "--time-per-point",
                "20 s",
            )
            for name, batch in TRAINED
        ]
    seconds = [
        {result["bytes"]: result["seconds"] for result in bench["results"]} for bench in benches
    ]
    small, large = min(seconds[0]), max(seconds[0])
    trained = [run[0] for run in runs]
    document = {
        "measured_at": benches[0]["created_at"],
        "cpu_model": benches[0]["host"]["cpu_model"],
        "torch": benches[0]["host"]["torch"],
        # with two ranks, a ring has 2(k − 1) = 2 hops and sends 2(k − 1)/k = 1 times the bytes
        "link_bytes_per_second": round_to_digits(
            large / median(by_size[large] for by_size in seconds)
        ),
        "hop_seconds": round_to_digits(median(by_size[small] for by_size in seconds) / 2),
        "overlap": round_to_digits(median(compute_overlap(run) for run in trained)),
        "variation": round_to_digits(measure_variation()),
        "data_parallel_host_seconds": round_to_digits(measure_replica_seconds()),
    }
    write_text(OUTPUT, json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def run_bench(home: str, *arguments: str) -> Any:
    finished = subprocess.run(
        [sys.executable, "-m", "gpuyard", "bench", *arguments, "--json"],
        env=os.environ | {"GPUYARD_HOME": home},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(finished.stdout)


def compute_overlap(run: dict[str, Any]) -> float:
    exposed: float = run["step"]["exposed_communication_seconds"]
    bare: float = run["all_reduce_seconds"]
    return max(0.0, 1 - exposed / bare)


def measure_variation() -> float:
    with get_context("spawn").Pool(2) as pool:
        return fmean(pool.map(_measure_relative_deviation, range(2)))


def _measure_relative_deviation(core: int) -> float:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    torch.set_num_threads(1)
    matrix = torch.rand(1500, 1500)  # takes tens of milliseconds, like a step on one core
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    kept = seconds[STEPS // 10 :]  # the first ones warm up
    return stdev(kept) / fmean(kept)


def measure_replica_seconds() -> float:
    """Measure the Python time of torch's `replicate` for one GPU, per layer with parameters."""
    model = resnet50().model
    layers = sum(any(True for _ in m.parameters(recurse=False)) for m in model.modules())
    seconds = []
    for _ in range(REPLICAS):
        start = time.perf_counter()
        replicate(model)
        seconds.append(time.perf_counter() - start)
    return median(seconds) / layers


def replicate(model: nn.Module) -> None:
    modules = list(model.modules())
    copies = {m: m._replicate_for_data_parallel() for m in modules}  # type: ignore[no-untyped-call]
    for module in modules:
        for name, child in module._modules.items():
            setattr(copies[module], name, copies[child] if child is not None else None)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                setattr(copies[module], name, parameter.detach())


def round_to_digits(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
