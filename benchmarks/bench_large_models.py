"""Measure layouts of a large model evaluated per second on one core: time, memory, and fit of each."""

import json
import statistics
import time

import numpy as np

from gpuyard.catalog.transformers import transformers
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor.large.cluster import describe_cluster
from gpuyard.predictor.large.compute import TrainingOptions
from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.memory import StateBytes, compute_memory
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.search import Choices, SearchSpace
from gpuyard.predictor.large.step import compute_step

ROUNDS = 5
CONFIGURATIONS = 100_000


def main() -> None:
    shape = transformers().get("deepseek-v3").shape
    model, cluster = describe_model(shape), describe_cluster(read_cluster("32xdgx-h100"), "bf16")
    space = SearchSpace(shape, 256, 8, 4096, 4096, Choices())
    layouts = space.enumerate(("megatron", "pytorch"))
    repeats = -(-CONFIGURATIONS // len(layouts))
    many = LayoutColumns(*(np.tile(column, repeats) for column in vars(layouts).values()))
    fit = load_fit()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for first in range(0, len(many), 8192):  # pieces that stay in the processor's cache
            piece = many.take(np.arange(first, min(first + 8192, len(many)), dtype=np.intp))
            compute_step(model, piece, cluster, TrainingOptions(), fit.constants)
            compute_memory(model, piece, StateBytes(), fit.memory)
        seconds.append(time.perf_counter() - start)
    value = len(many) / statistics.median(seconds)
    print(f"{len(layouts):,} layouts, evaluated {repeats} times: {value:,.0f} per second")
    print(json.dumps({"name": "bench_large_models", "value": value, "unit": "configurations/s"}))


if __name__ == "__main__":
    main()
