"""Measure how far a run lies from what an earlier one, or a known link, makes us expect: the σ of intervals.

    python scripts/measure_spread.py                        # some minutes, on a quiet machine with two cores
    python scripts/measure_spread.py compute exchange input # the same; name fewer to measure these again
    python scripts/measure_spread.py --check                # exits 1 where the σ are not those of the figures

Writes `tests/data/spread.json`: all figures, and the σ from them, which `predict/constants.py` follows;
a test compares them. What one of two alike figures says about the other is √2 of the σ of each, in
logarithms.

compute    samples/s of the same training, started anew each time; only runs that are credible
exchange   seconds of the same all-reduce, started anew each time, which is how far a link's rate can be
           known; and seconds of all-reduces against what the formula says for a known link: the lab's
           rows in tests/data/lab
input      seconds a sample of torch's loader with one process and with two, against those with one process
           another time; and the rate of the same reads from a disk, past its cache

Run by root, it goes before all other programs.
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
from gpuyard.measure import Measurement
from gpuyard.measure.collectives.expected import LAB_PAYLOAD, RingLinks, expected_seconds
from gpuyard.measure.reading import read_results
from gpuyard.measure.record import this_testbed
from gpuyard.measure.storage.cache import bypass_of
from gpuyard.measure.storage.plan import plan_storage
from gpuyard.measure.storage.run import own_files, run_trial
from gpuyard.workloads.disk_images import find_images

DATA = Path(__file__).parent.parent / "tests/data"
OUTPUT = DATA / "spread.json"
PARTS = ("compute", "exchange", "input")
RUNS = 7
EXCHANGES = 21
MOST_DOUBTFUL = 14
TRAINED = (("resnet18", 4),)
PICTURES = 160
LOADERS = (1, 2)
_SIGMA_OF_MEDIAN = 1 / NormalDist().inv_cdf(0.75)  # of absolute values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="what to measure; else everything")
    parser.add_argument("--check", action="store_true", help="measure and write nothing")
    asked = parser.parse_args()
    document = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    if asked.check:
        return 0 if document["sigma"] == sigmas(document) else 1
    first_to_be_served()
    testbed = this_testbed()
    measured = {"compute": compute, "exchange": exchange, "input": prepared}
    for part in asked.parts or PARTS:
        document[part] = {
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "cpu_model": testbed.cpu_model,
            "torch": testbed.torch,
            **measured[part](),
        }
        document["sigma"] = sigmas(document)
        write_text(OUTPUT, json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))
    return 0


def sigmas(document: dict[str, Any]) -> dict[str, float]:
    """From the figures alone, of the parts that are there."""
    made = {"compute": compute_sigma, "exchange": exchange_sigma, "input": input_sigma}
    return {part: rounded(made[part](document[part]), 3) for part in PARTS if part in document}


def compute_sigma(figures: dict[str, Any]) -> float:
    return repeated(figures["samples_per_second"].values())


def exchange_sigma(figures: dict[str, Any]) -> float:
    """How far the link is known, and how far the formula is right where it is."""
    link = repeated(figures["all_reduce_seconds"].values())
    return sqrt(link**2 + root_mean_square(formula_errors()) ** 2)


def input_sigma(figures: dict[str, Any]) -> float:
    """Of either, loader and disk: a prediction does not know beforehand which is the slower one."""
    loaders = [
        log(later * int(workers) / known)
        for workers, seconds in figures["seconds_a_sample"].items()
        for j, later in enumerate(seconds)
        for i, known in enumerate(figures["seconds_a_sample"]["1"])
        if i != j
    ]
    disk = repeated([figures["disk_bytes_per_second"]])
    return root_mean_square([root_mean_square(loaders), disk])


def repeated(groups: Iterable[Sequence[float]]) -> float:
    """σ of the logarithm of one figure over another of the same group, by their median: one run that the
    machine was taken away from says nothing about the others."""
    apart = [abs(log(one / other)) for group in groups for one, other in combinations(group, 2)]
    return _SIGMA_OF_MEDIAN * median(apart)


def root_mean_square(errors: Sequence[float]) -> float:
    return sqrt(fmean(error**2 for error in errors))


def formula_errors() -> list[float]:
    """Of the lab's bare all-reduces, whose links have a rate that is set."""
    errors = []
    for recorded in sorted((DATA / "lab").glob("*.jsonl")):
        for run in read_results([recorded]).of(Measurement):
            link, took, size = (
                run.place.link_bytes_per_second,
                run.all_reduce_seconds,
                run.all_reduce_bytes,
            )
            if link and took and size:
                links = RingLinks(link * LAB_PAYLOAD, 0.0)
                expected = sum(expected_seconds("all_reduce", "gloo", run.workers, size, links))
                errors.append(log(took / expected))
    return errors


def compute() -> dict[str, Any]:
    """Trainings of one worker on one core, each with processes of its own."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(every)})
    rates: dict[str, list[float]] = {f"{name} {batch}": [] for name, batch in TRAINED}
    doubtful = 0
    for name, batch in TRAINED:
        kept = rates[f"{name} {batch}"]
        while len(kept) < RUNS and doubtful < MOST_DOUBTFUL:
            (run,) = asked_of("train", name, "--workers", "1", "--batch", str(batch))
            if run["doubt"] is None:
                kept.append(rounded(run["samples_per_second"]))
                continue
            doubtful += 1
            print(f"{name}: {run['doubt']}: again", file=sys.stderr)
    os.sched_setaffinity(0, every)
    if doubtful == MOST_DOUBTFUL:
        sys.exit("too few runs are credible: is something else running?")
    return {"doubtful_runs": doubtful, "samples_per_second": rates}


def exchange() -> dict[str, Any]:
    """All-reduces of two gloo ranks of this machine."""
    seconds: dict[str, list[float]] = {}
    for _ in range(EXCHANGES):
        bench = asked_of("collectives", "--workers", "2", "--bytes", "1MB,16MB", "--repeats", "20")
        for result in bench["results"]:
            if result["operation"] == "all_reduce":
                seconds.setdefault(str(result["bytes"]), []).append(rounded(result["seconds"]))
    return {"all_reduce_seconds": seconds}


def asked_of(*arguments: str) -> Any:
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", "bench", *arguments, "--json"],
            env=os.environ | {"GPUYARD_HOME": home},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return json.loads(done.stdout)


def first_to_be_served() -> None:
    """Where we may: other programs then hardly take a core away, not even from ranks in other sessions."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def prepared() -> dict[str, Any]:
    """A folder of photographs' size, and a data set on this disk."""
    taken: dict[str, list[float]] = {str(workers): [] for workers in LOADERS}
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        draw_pictures(Path(folder))
        for _ in range(RUNS):
            for workers in LOADERS:
                taken[str(workers)].append(rounded(loaded(folder, workers)))
        rates = disk_rates(Path(folder))
    return {"seconds_a_sample": taken, "disk_bytes_per_second": rates}


def loaded(folder: str, workers: int) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(seconds_a_sample, folder, workers).result()


def draw_pictures(folder: Path) -> None:
    """Of 500 × 375, as those of ImageNet are on average, with noise as fine as makes 100 kB of them."""
    from PIL import Image

    (folder / "class").mkdir()
    generator = np.random.default_rng(0)
    for number in range(PICTURES):
        coarse = generator.integers(0, 256, (94, 125, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / "class" / f"{number:04d}.jpg", quality=95)


def seconds_a_sample(folder: str, workers: int) -> float:
    """Of a loader whose processes have started."""
    import torch  # here only: --check is to be quick

    torch.set_num_threads(1)
    images = find_images(folder, (3, 224, 224))
    loader = torch.utils.data.DataLoader(images, batch_size=8, num_workers=workers)  # type: ignore[var-annotated, arg-type]
    batches = iter(loader)
    # what was fetched ahead while the processes started would count as made in no time
    for _ in range(2 * workers):
        next(batches)
    start = time.perf_counter()
    left = sum(len(labels) for _, labels in batches)
    return (time.perf_counter() - start) / left


def disk_rates(folder: Path) -> list[float]:
    """Of two readers of batches of 16 MB that never compute."""
    plan = plan_storage(folder, seconds=0.06)
    plan = replace(plan, compute_seconds=0.001, batch=round(16e6 / plan.record_bytes))
    with own_files(folder, plan.own_bytes, plan.own_files, lambda _share: None) as files:
        bypass = bypass_of(files, plan.own_bytes)
        if bypass == "none":
            sys.exit(f"reads from {folder} can't bypass memory: set HOME to a disk")
        return [rounded(run_trial(plan, files, bypass, 2).bytes_per_second) for _ in range(RUNS)]


def rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


if __name__ == "__main__":
    sys.exit(main())
