"""Measure how far repeated runs and all-reduces over a known link deviate from their expectation: the σ of intervals.

    python scripts/measure_spread.py                        # takes minutes; needs an idle machine with two cores
    python scripts/measure_spread.py compute exchange input # the same; name fewer parts to measure only those again
    python scripts/measure_spread.py --check                # exits 1 if the σ don't follow from the figures

Writes `tests/data/spread.json`: all figures and their σ. A test compares `predictor/constants.py` with it. The ratio of two similar
figures has √2 times the σ of each, in logarithms.

compute    samples/s of the same training in repeated runs; only valid runs count
exchange   seconds of the same all-reduce in repeated runs, which is how precisely a link's rate can be known; and seconds of
           all-reduces against the formula for a known link, from the lab's rows in tests/data/lab
input      seconds per sample of torch's loader with one process and with two, against another run with one process; and the
           rate of repeated reads from a disk that bypass its cache

If root runs it, it has priority over all other programs.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import combinations
from math import log, sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import Any

import numpy as np

from gpuyard.files import write_text
from gpuyard.measure.collectives.expected import LAB_PAYLOAD, RingLinks, expected_seconds
from gpuyard.measure.reading import read_results
from gpuyard.measure.record import discover_testbed
from gpuyard.measure.storage.cache import choose_cache_bypass
from gpuyard.measure.storage.plan import plan_storage
from gpuyard.measure.storage.run import run_trial, write_dataset
from gpuyard.measure.training.records import Measurement
from gpuyard.workloads.disk_images import find_images

DATA = Path(__file__).parent.parent / "tests/data"
OUTPUT = DATA / "spread.json"
PARTS = ("compute", "exchange", "input")
RUNS = 7
EXCHANGES = 21
MAX_DOUBTFUL = 14
TRAINED = (("resnet18", 4),)
PICTURES = 160
LOADERS = (1, 2)
_SIGMA_PER_MEDIAN = 1 / NormalDist().inv_cdf(0.75)  # for absolute values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="parts to measure (default: all)")
    parser.add_argument("--check", action="store_true", help="measure and write nothing")
    options = parser.parse_args()
    document = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    if options.check:
        return 0 if document["sigma"] == compute_sigmas(document) else 1
    raise_priority()
    testbed = discover_testbed()
    measure = {"compute": measure_compute, "exchange": measure_exchange, "input": measure_input}
    for part in options.parts or PARTS:
        document[part] = {
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "cpu_model": testbed.cpu_model,
            "torch": testbed.torch,
            **measure[part](),
        }
        document["sigma"] = compute_sigmas(document)
        write_text(OUTPUT, json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))
    return 0


def compute_sigmas(document: dict[str, Any]) -> dict[str, float]:
    """Compute σ of every measured part from its figures."""
    sigmas = {
        "compute": compute_training_sigma,
        "exchange": compute_exchange_sigma,
        "input": compute_input_sigma,
    }
    return {
        part: round_to_digits(sigmas[part](document[part]), 3) for part in PARTS if part in document
    }


def compute_training_sigma(figures: dict[str, Any]) -> float:
    return compute_repeat_sigma(figures["samples_per_second"].values())


def compute_exchange_sigma(figures: dict[str, Any]) -> float:
    """Combine the uncertainty of a link's rate with the error of the formula for a known rate."""
    link = compute_repeat_sigma(figures["all_reduce_seconds"].values())
    return sqrt(link**2 + compute_rms(compute_formula_errors()) ** 2)


def compute_input_sigma(figures: dict[str, Any]) -> float:
    """Combine the σ of the loader and the disk: a prediction cannot know which will be slower."""
    loaders = [
        log(seconds * int(workers) / reference)
        for workers, runs in figures["seconds_per_sample"].items()
        for j, seconds in enumerate(runs)
        for i, reference in enumerate(figures["seconds_per_sample"]["1"])
        if i != j
    ]
    disk = compute_repeat_sigma([figures["disk_bytes_per_second"]])
    return compute_rms([compute_rms(loaders), disk])


def compute_repeat_sigma(groups: Iterable[Sequence[float]]) -> float:
    """Compute σ of the log ratio of two figures in a group from the median, which ignores disturbed runs."""
    log_ratios = [abs(log(a / b)) for group in groups for a, b in combinations(group, 2)]
    return _SIGMA_PER_MEDIAN * median(log_ratios)


def compute_rms(errors: Sequence[float]) -> float:
    return sqrt(fmean(error**2 for error in errors))


def compute_formula_errors() -> list[float]:
    """Compute the log errors of the formula for the lab's bare all-reduces, whose link rate is set."""
    errors = []
    for recorded in sorted((DATA / "lab").glob("*.jsonl")):
        for run in read_results([recorded]).select(Measurement):
            link, seconds, size = (
                run.place.link_bytes_per_second,
                run.all_reduce_seconds,
                run.all_reduce_bytes,
            )
            if link and seconds and size:
                links = RingLinks(link * LAB_PAYLOAD, 0.0)
                expected = sum(expected_seconds("all_reduce", "gloo", run.workers, size, links))
                errors.append(log(seconds / expected))
    return errors


def measure_compute() -> dict[str, Any]:
    """Train with one worker on one core, each time in new processes."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_cores)})
    rates: dict[str, list[float]] = {f"{name} {batch}": [] for name, batch in TRAINED}
    doubtful = 0
    for name, batch in TRAINED:
        kept = rates[f"{name} {batch}"]
        while len(kept) < RUNS and doubtful < MAX_DOUBTFUL:
            (run,) = run_bench("train", name, "--workers", "1", "--batch", str(batch))
            if run["doubt"] is None:
                kept.append(round_to_digits(run["samples_per_second"]))
                continue
            doubtful += 1
            print(f"{name}: {run['doubt']}; repeating", file=sys.stderr)
    os.sched_setaffinity(0, all_cores)
    if doubtful == MAX_DOUBTFUL:
        sys.exit("too few runs are valid; stop other programs and try again")
    return {"doubtful_runs": doubtful, "samples_per_second": rates}


def measure_exchange() -> dict[str, Any]:
    """Time all-reduces between two gloo ranks on this machine."""
    seconds: dict[str, list[float]] = {}
    for _ in range(EXCHANGES):
        bench = run_bench("collectives", "--workers", "2", "--bytes", "1MB,16MB", "--repeats", "20")
        for result in bench["results"]:
            if result["operation"] == "all_reduce":
                seconds.setdefault(str(result["bytes"]), []).append(
                    round_to_digits(result["seconds"])
                )
    return {"all_reduce_seconds": seconds}


def run_bench(*arguments: str) -> Any:
    with tempfile.TemporaryDirectory() as home:
        finished = subprocess.run(
            [sys.executable, "-m", "gpuyard", "bench", *arguments, "--json"],
            env=os.environ | {"GPUYARD_HOME": home},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return json.loads(finished.stdout)


def raise_priority() -> None:
    """Request real-time scheduling if permitted, so that other programs rarely take a core."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def measure_input() -> dict[str, Any]:
    """Measure the loader on photo-sized images and the rate of this disk."""
    seconds: dict[str, list[float]] = {str(workers): [] for workers in LOADERS}
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        draw_pictures(Path(folder))
        for _ in range(RUNS):
            for workers in LOADERS:
                seconds[str(workers)].append(round_to_digits(measure_loader(folder, workers)))
        rates = measure_disk_rates(Path(folder))
    return {"seconds_per_sample": seconds, "disk_bytes_per_second": rates}


def measure_loader(folder: str, workers: int) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(measure_seconds_per_sample, folder, workers).result()


def draw_pictures(folder: Path) -> None:
    """Draw JPEGs of 500 × 375 pixels, ImageNet's average, with noise that makes them about 100 kB."""
    from PIL import Image

    (folder / "class").mkdir()
    generator = np.random.default_rng(0)
    for number in range(PICTURES):
        coarse = generator.integers(0, 256, (94, 125, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / "class" / f"{number:04d}.jpg", quality=95)


def measure_seconds_per_sample(folder: str, workers: int) -> float:
    """Time a loader whose processes have started."""
    import torch  # imported late to keep --check fast

    torch.set_num_threads(1)
    images = find_images(folder, (3, 224, 224))
    loader = torch.utils.data.DataLoader(images, batch_size=8, num_workers=workers)  # type: ignore[var-annotated, arg-type]
    batches = iter(loader)
    # skip the batches that were fetched ahead while the processes started
    for _ in range(2 * workers):
        next(batches)
    start = time.perf_counter()
    samples = sum(len(labels) for _, labels in batches)
    return (time.perf_counter() - start) / samples


def measure_disk_rates(folder: Path) -> list[float]:
    """Measure two readers of 16 MB batches that never compute."""
    plan = plan_storage(folder, seconds=0.06)
    plan = replace(plan, compute_seconds=0.001, batch=round(16e6 / plan.record_bytes))
    with write_dataset(folder, plan.own_bytes, plan.own_files, lambda _share: None) as files:
        bypass = choose_cache_bypass(files, plan.own_bytes)
        if bypass == "none":
            sys.exit(
                f"reads from {folder} cannot bypass the page cache; set HOME to a directory on a disk"
            )
        return [
            round_to_digits(run_trial(plan, files, bypass, 2).bytes_per_second) for _ in range(RUNS)
        ]


def round_to_digits(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


if __name__ == "__main__":
    sys.exit(main())
