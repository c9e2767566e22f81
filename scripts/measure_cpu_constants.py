"""Measure what the predictor takes for CPU ranks where nothing was measured, and what DataParallel costs its host.

    python scripts/measure_cpu_constants.py    # some minutes on a quiet machine with two cores or more

Writes `tests/data/cpu_constants.json`, which `predict/constants.py` and `predict/calibration/defaults.py`
follow: a test compares them. `gpuyard calibrate` replaces all but the last by the user's own.

link, hop            two gloo ranks of this machine, all-reduces of 16 MB and of 1 KB
overlap              1 − exposed / bare all-reduce, of two ranks that train
variation            of one core's time for the same product of matrices, while another core does it too
data_parallel_host   Python's share of copying a module to a GPU: one replica's, for each layer
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
            asked(home, "collectives", "--workers", "2", "--bytes", "1KB,16MB", "--repeats", "50")
            for _ in range(BENCHES)
        ]
        runs = [
            asked(
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
        # two ranks: a ring's 2(k − 1) hops are two, and its 2(k − 1)/k of the bytes are all of them
        "link_bytes_per_second": rounded(large / median(by[large] for by in seconds)),
        "hop_seconds": rounded(median(by[small] for by in seconds) / 2),
        "overlap": rounded(median(hidden(run) for run in trained)),
        "variation": rounded(variation()),
        "data_parallel_host_seconds": rounded(replica_seconds()),
    }
    write_text(OUTPUT, json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def asked(home: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "gpuyard", "bench", *arguments, "--json"],
        env=os.environ | {"GPUYARD_HOME": home},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def hidden(run: dict[str, Any]) -> float:
    exposed: float = run["step"]["exposed_communication_seconds"]
    bare: float = run["all_reduce_seconds"]
    return max(0.0, 1 - exposed / bare)


def variation() -> float:
    with get_context("spawn").Pool(2) as pool:
        return fmean(pool.map(_relative_deviation, range(2)))


def _relative_deviation(core: int) -> float:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    torch.set_num_threads(1)
    matrix = torch.rand(1500, 1500)  # tens of milliseconds, as a step on a core takes
    taken = []
    for _ in range(STEPS):
        start = time.perf_counter()
        matrix @ matrix
        taken.append(time.perf_counter() - start)
    kept = taken[STEPS // 10 :]  # the first ones warm up
    return stdev(kept) / fmean(kept)


def replica_seconds() -> float:
    """What torch's replicate does in Python for one GPU, by layers with parameters."""
    model = resnet50().model
    layers = sum(any(True for _ in m.parameters(recurse=False)) for m in model.modules())
    taken = []
    for _ in range(REPLICAS):
        start = time.perf_counter()
        copy(model)
        taken.append(time.perf_counter() - start)
    return median(taken) / layers


def copy(model: nn.Module) -> None:
    modules = list(model.modules())
    copies = {m: m._replicate_for_data_parallel() for m in modules}  # type: ignore[no-untyped-call]
    for module in modules:
        for name, child in module._modules.items():
            setattr(copies[module], name, copies[child] if child is not None else None)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                setattr(copies[module], name, parameter.detach())


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
