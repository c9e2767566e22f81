"""Software stacks as the step model sees them, and what measured figures say about them.

A stack is described by the share of communication it hides, its exchange rate, and its loss per doubling of GPUs. The
model uses a grid of stacks. `scripts/fit_stacks.py` derives their prior probabilities from the published sources,
each with the same weight. Each stack is then weighted by how well it explains the measured figures.

The unexplained rest is a smooth difference between configurations. It grows with the communication share of a step
and with the distance between two configurations. A common factor is added if the speed of one GPU was not measured.
So a measured configuration gets its own figure back, and a distant one gets what the most likely stacks predict.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from typing import Any

import numpy as np

from gpuyard.errors import did_you_mean
from gpuyard.predictor.interval import (
    MAX_DOUBLINGS,
    NORMAL_90,
    Distance,
    PredictionInterval,
    saturate,
)
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.table import (
    Floats,
    StepTable,
    compute_step_parts,
    expected_maximum,
    input_seconds,
    resolve_overlap,
)
from gpuyard.specs import Workload

# factors on the fitted overlap and link rates, and the loss of a step per doubling of GPUs
OVERLAP_FACTORS = (0.0, 0.35, 0.7, 1.0, 1.3)
RATE_FACTORS = (0.1, 0.17, 0.28, 0.45, 0.67, 0.85, 1.0, 1.25, 1.7)
TAXES = (-0.02, -0.01, 0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.14, 0.19, 0.25)
STACKS = tuple(product(RATE_FACTORS, OVERLAP_FACTORS, TAXES))
# one σ that no stack of the grid explains: for any step, and additionally for a step that is all communication
UNEXPLAINED_SIGMA, COMMUNICATION_SIGMA = 0.06, 0.11
# the loss per doubling is seldom even: one σ, as a share of the loss
TAX_SIGMA = 0.45
# distances at which the similarity of two configurations halves: doublings of GPUs; factors of e in the batch
_DOUBLINGS_SCALE, _BATCH_SCALE = 1.5, 1.0
# one σ between two runs of the same configuration
RERUN_SIGMA = 0.0142
_OTHER_TRAINING_SIMILARITY = 0.3
_JITTER = 1e-6
LOW, HIGH = 0.05, 0.95


def step_seconds_by_stack(table: StepTable) -> Floats:
    """Return the step times, one row per stack and one column per configuration."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    several = table.nodes > 1
    passes = table.accumulate * table.local_sgd
    disturbed = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        several, traffic.slowdown_between, 0.0
    )
    alone = compute * (1 + disturbed + traffic.variation * expected_maximum(table.gpus))
    alone = alone + table.host_overhead_seconds
    doublings = np.minimum(np.log2(table.gpus), MAX_DOUBLINGS)
    taxed = np.exp(np.array(TAXES)[:, None] * doublings)
    input_wait = input_seconds(table)
    seconds = []
    for rate in RATE_FACTORS:
        total, ideal = traffic.strategy.exchange_seconds(_scale_links(table, rate), compute)
        usual = resolve_overlap(table, total * rate)
        for factor in OVERLAP_FACTORS:
            overlap = np.minimum(usual * factor, 1.0)
            exposed = (total - overlap * (total - ideal)) / passes
            seconds.append(np.maximum((alone + exposed) * taxed, input_wait))
    return np.concatenate(seconds)


def _scale_links(table: StepTable, rate: float) -> StepTable:
    """Return the table with all links faster by a factor."""
    return replace(
        table,
        inside_bytes_per_second=table.inside_bytes_per_second * rate,
        between_bytes_per_second=table.between_bytes_per_second * rate,
        inside_latency_seconds=table.inside_latency_seconds / rate,
        between_latency_seconds=table.between_latency_seconds / rate,
    )


def list_frameworks() -> tuple[str, ...]:
    """List the frameworks with published results."""
    return tuple(_load_priors()["frameworks"])


def has_published_framework(workload: Workload) -> bool:
    """Return whether the workload names a framework with published results."""
    return workload.framework in list_frameworks()


def describe_framework(scenario: PlatformScenario) -> str:
    """Say what is known about the framework that the workload names, or nothing if it names none."""
    framework = scenario.workload.framework
    if framework is None:
        return ""
    if has_published_framework(scenario.workload) and scenario.gpu is not None:
        return f"Framework: {framework}, predicted from its published results."
    frameworks = list_frameworks()
    return (
        f"Framework: there are no published results for {framework}, so the interval covers any stack. "
        f"Known frameworks: {', '.join(frameworks)}{did_you_mean(framework, frameworks) or '.'}"
    )


@functools.cache
def load_prior(framework: str | None = None) -> Floats:
    """Return the prior probability of each stack, given a known framework or for any stack."""
    priors = _load_priors()
    weight = np.array(priors["frameworks"].get(framework, priors["prior"]), dtype=float)
    return np.asarray(weight / weight.sum())


@functools.cache
def _load_priors() -> dict[str, Any]:
    text = (resources.files("gpuyard.predictor") / "data" / "stacks.json").read_text(
        encoding="utf-8"
    )
    priors: dict[str, Any] = json.loads(text)
    return priors


@dataclass(frozen=True)
class PredictionPoints:
    """Configurations with the step times that each stack predicts for them."""

    gpus: Floats
    nodes: Floats
    batch_per_gpu: Floats
    exchanged: Floats  # communication share of a step, hidden or not
    log_seconds: Floats  # one row per stack, one column per configuration
    training: tuple[str, ...]  # label of the training; other trainings are less similar

    @classmethod
    def from_table(cls, table: StepTable, training: str) -> "PredictionPoints":
        return cls(
            table.gpus,
            table.nodes,
            table.batch_per_gpu,
            communication_share(table),
            np.log(step_seconds_by_stack(table)),
            (training,) * len(table.gpus),
        )

    def similarity(self, others: "PredictionPoints") -> Floats:
        """Return the pairwise similarity: 1 for the same configuration, less with distance."""
        doublings = np.abs(np.log2(self.gpus)[:, None] - np.log2(others.gpus))
        machines = np.abs(np.log2(self.nodes)[:, None] - np.log2(others.nodes)) / 2
        batches = np.abs(np.log(self.batch_per_gpu)[:, None] - np.log(others.batch_per_gpu))
        same = np.array(self.training)[:, None] == np.array(others.training)
        near = np.exp2(-(doublings + machines) / _DOUBLINGS_SCALE - batches / _BATCH_SCALE)
        return np.asarray(np.where(same, near, _OTHER_TRAINING_SIMILARITY * near))

    def unexplained_sigma(self, tax: float) -> Floats:
        """Return one σ of what a stack with this loss per doubling does not explain."""
        return _unexplained_sigma(self.gpus, self.exchanged, tax)

    def covariance(self, others: "PredictionPoints", compute_sigma: float, tax: float) -> Floats:
        """Return the covariance of what such stacks do not explain.

        `compute_sigma` is the σ of one GPU's speed, which all configurations share.
        """
        both = self.unexplained_sigma(tax)[:, None] * others.unexplained_sigma(tax)
        return np.asarray(compute_sigma**2 + both * self.similarity(others))


@dataclass(frozen=True)
class Posterior:
    """The expected log step times of configurations and the intervals of their rates."""

    log_seconds: Floats
    interval: PredictionInterval


def compute_posterior(
    targets: PredictionPoints,
    measured: PredictionPoints,
    log_seconds: Floats,
    compute_sigma: float,
    prior: Floats,
) -> Posterior:
    """Condition the target configurations on the log step times of the measured ones.

    `compute_sigma` is the σ of one GPU's speed.
    """
    weight = np.log(prior)
    means = targets.log_seconds.copy()
    variance = np.empty((len(TAXES), len(targets.gpus)))
    residuals = log_seconds - measured.log_seconds
    jitter = _JITTER * np.eye(len(measured.gpus))
    for number, tax in enumerate(TAXES):
        stacks = slice(number, None, len(TAXES))  # all stacks with this tax
        variance[number] = compute_sigma**2 + targets.unexplained_sigma(tax) ** 2
        if not len(measured.gpus):
            continue
        between = measured.covariance(measured, compute_sigma, tax) + jitter
        inverse = np.linalg.inv(between)
        squares = np.einsum("si,ij,sj->s", residuals[stacks], inverse, residuals[stacks])
        weight[stacks] -= 0.5 * (squares + np.linalg.slogdet(between)[1])
        across = targets.covariance(measured, compute_sigma, tax)
        gain = across @ inverse
        means[stacks] += residuals[stacks] @ gain.T
        variance[number] = np.maximum(variance[number] - np.sum(gain * across, axis=1), 0.0)
    weight = np.exp(weight - weight.max())
    return mix_stacks(means, weight / weight.sum(), variance)


def widen_to_cover(middle: Posterior, others: Sequence[Posterior]) -> Posterior:
    """Return the middle posterior with an interval that covers those of all others."""
    posteriors = (middle, *others)
    slowest = np.max([each.log_seconds + each.interval.slow for each in posteriors], axis=0)
    fastest = np.min([each.log_seconds - each.interval.fast for each in posteriors], axis=0)
    expected = middle.log_seconds
    return Posterior(expected, PredictionInterval(slowest - expected, expected - fastest))


def _unexplained_sigma(gpus: Floats, exchanged: Floats, tax: float) -> Floats:
    doublings = np.minimum(np.log2(gpus), MAX_DOUBLINGS)
    any_stack = np.hypot(UNEXPLAINED_SIGMA, COMMUNICATION_SIGMA * saturate(exchanged))
    return np.asarray(np.hypot(any_stack, TAX_SIGMA * tax * doublings))


def communication_share(table: StepTable) -> Floats:
    """Return the communication share of each step, hidden or not."""
    parts = compute_step_parts(table)
    return Distance.from_parts(parts, table.gpus, table.accumulate * table.local_sgd).exchanged


def mix_stacks(means: Floats, weight: Floats, variance: Floats) -> Posterior:
    """Mix the predictions of all stacks into a median and an interval.

    `variance` is the additional uncertainty, one row per tax and one column per configuration.
    """
    # one row per configuration, in single precision: a plan mixes hundreds of thousands of rows
    rows = np.ascontiguousarray(means.T, dtype=np.float32)
    order = np.argsort(rows, axis=1)
    share = np.cumsum(weight.astype(np.float32)[order], axis=1)
    row = np.arange(len(rows))

    def quantile(level: float) -> Floats:
        at = np.argmax(share >= level - 1e-6, axis=1)
        return np.asarray(means[order[row, at], row])

    middle = quantile(0.5)
    slow, fast = quantile(HIGH) - middle, middle - quantile(LOW)
    weight_by_tax = weight.reshape(-1, len(TAXES)).sum(axis=0)
    other = NORMAL_90 * np.sqrt(weight_by_tax @ variance + RERUN_SIGMA**2)
    return Posterior(
        middle,
        PredictionInterval(
            np.hypot(np.maximum(slow, 0.0), other), np.hypot(np.maximum(fast, 0.0), other)
        ),
    )


def predict_with_framework(
    table: StepTable,
    seconds: Floats,
    any_stack: PredictionInterval,
    compute_sigma: Floats | float,
    framework: str,
) -> Posterior:
    """Predict steps from a framework's published results.

    They say where in the interval of any stack the steps lie. One GPU exchanges nothing and stays unchanged.
    """
    sigmas = [_unexplained_sigma(table.gpus, communication_share(table), tax) for tax in TAXES]
    variance = np.square(compute_sigma) + np.square(sigmas)
    posterior = mix_stacks(np.log(step_seconds_by_stack(table)), load_prior(framework), variance)
    interval = posterior.interval.clip_to(any_stack, posterior.log_seconds - np.log(seconds))
    alone = table.gpus == 1
    return Posterior(
        np.where(alone, np.log(seconds), posterior.log_seconds),
        PredictionInterval(
            np.where(alone, any_stack.slow, interval.slow),
            np.where(alone, any_stack.fast, interval.fast),
        ),
    )
