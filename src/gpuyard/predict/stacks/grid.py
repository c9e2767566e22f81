"""Software stacks as the step model sees them: what each hides of an exchange, how fast it exchanges, and what it
loses with every doubling of its GPUs. A grid of them, with how likely each is before anything was measured: by
the published sources, each of which counts the same (`scripts/fit_stacks.py`)."""

import functools
import json
from dataclasses import replace
from importlib import resources
from itertools import product
from typing import Any

import numpy as np

from gpuyard.predict.interval import MOST_DOUBLINGS
from gpuyard.predict.prediction import input_seconds
from gpuyard.predict.table import Floats, Table
from gpuyard.predict.transport import expected_maximum

# times what the constants say; and of a step, a doubling
HIDES = (0.0, 0.35, 0.7, 1.0, 1.3)
RATES = (0.1, 0.17, 0.28, 0.45, 0.67, 0.85, 1.0, 1.25, 1.7)
TAXES = (-0.02, -0.01, 0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.14, 0.19, 0.25)
STACKS = tuple(product(RATES, HIDES, TAXES))


def step_seconds(table: Table) -> Floats:
    """Of every stack (down) in every row (across)."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    several = table.nodes > 1
    usual = np.where(several, traffic.overlap_between, traffic.overlap)
    usual = np.where(table.local_sgd > 1, 0.0, usual)
    passes = table.accumulate * table.local_sgd
    disturbed = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        several, traffic.slowdown_between, 0.0
    )
    alone = compute * (1 + disturbed + traffic.variation * expected_maximum(table.gpus))
    alone = alone + table.host_overhead_seconds
    doublings = np.minimum(np.log2(table.gpus), MOST_DOUBLINGS)
    taxed = np.exp(np.array(TAXES)[:, None] * doublings)
    waits = input_seconds(table)
    found = []
    for rate in RATES:
        total, ideal = traffic.strategy.exchange_seconds(_at(table, rate), compute)
        for hides in HIDES:
            overlap = np.minimum(usual * hides, 1.0)
            exposed = (total - overlap * (total - ideal)) / passes
            found.append(np.maximum((alone + exposed) * taxed, waits))
    return np.concatenate(found)


def _at(table: Table, rate: float) -> Table:
    """With links that are so many times as fast."""
    return replace(
        table,
        inside_bytes_per_second=table.inside_bytes_per_second * rate,
        between_bytes_per_second=table.between_bytes_per_second * rate,
        inside_latency_seconds=table.inside_latency_seconds / rate,
        between_latency_seconds=table.between_latency_seconds / rate,
    )


def frameworks() -> tuple[str, ...]:
    """Those of which something was published."""
    return tuple(_priors()["frameworks"])


@functools.cache
def prior(framework: str | None = None) -> Floats:
    """How likely each stack is, under a framework where one is named that is known; sums to one."""
    named = _priors()["frameworks"].get(framework, _priors()["prior"])
    weight = np.array(named, dtype=float)
    return np.asarray(weight / weight.sum())


@functools.cache
def _priors() -> dict[str, Any]:
    text = (resources.files("gpuyard.predict") / "data" / "stacks.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
