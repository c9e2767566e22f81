"""Software stacks as the step model sees them, and what measured figures say of them.

A stack is what it hides of an exchange, how fast it exchanges, and what it loses with every doubling of its GPUs. There
is a grid of them, with how likely each is before anything was measured: by the published sources, each of which
counts the same (`scripts/fit_stacks.py`). Each is then weighed by how well it explains what was measured. What none
of them explains is a smooth difference between configurations, larger the more of a step is exchanged and the
further two of them are apart, and a common factor where one GPU's own speed was not measured. So a configuration that
was measured gets its own figure back, and one far from all of them what the likeliest stacks say.
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
from gpuyard.predict.interval import MOST_DOUBLINGS, NORMAL_90, Distance, Reach, saturating
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.table import (
    Floats,
    StepTable,
    expected_maximum,
    input_seconds,
    step_parts,
)
from gpuyard.specs import Workload

# times what the constants say; and of a step, a doubling
HIDES = (0.0, 0.35, 0.7, 1.0, 1.3)
RATES = (0.1, 0.17, 0.28, 0.45, 0.67, 0.85, 1.0, 1.25, 1.7)
TAXES = (-0.02, -0.01, 0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.14, 0.19, 0.25)
STACKS = tuple(product(RATES, HIDES, TAXES))
# one σ of what no stack of the grid explains: of any step, and besides of one that is nothing but exchange
UNEXPLAINED, OF_EXCHANGE = 0.06, 0.11
# what costs some share of a step a doubling on average seldom does so evenly: one σ of it, as a share of it
TAX_UNEVEN = 0.45
# how far apart two configurations are half alike in it: doublings of GPUs; e times the batch
_DOUBLINGS, _BATCHES = 1.5, 1.0
# one σ between two runs of the same configuration
AGAIN = 0.0142
_OTHER_TRAINING = 0.3
_EXACT = 1e-6
LOW, HIGH = 0.05, 0.95


def step_seconds(table: StepTable) -> Floats:
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


def _at(table: StepTable, rate: float) -> StepTable:
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


def described(workload: Workload) -> bool:
    """Whether its framework is named and something was published of it."""
    return workload.framework in frameworks()


def framework_words(scenario: PlatformScenario) -> str:
    """What is known of the framework that the workload names: a sentence, or nothing where it names none."""
    named = scenario.workload.framework
    if named is None:
        return ""
    if described(scenario.workload) and scenario.gpu is not None:
        return f"Framework: {named}, predicted by what was published of it."
    return (
        f"Framework: nothing was published of {named} that is known here, so the interval is that of any stack; "
        f"known are {', '.join(frameworks())}{did_you_mean(named, frameworks()) or '.'}"
    )


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


@dataclass(frozen=True)
class Spots:
    """Configurations: where they are, and what each stack makes of them."""

    gpus: Floats
    nodes: Floats
    batch_per_gpu: Floats
    exchanged: Floats  # what of a step its exchange takes by the constants, hidden or not
    log_seconds: Floats  # stacks down, configurations across
    training: tuple[str, ...]  # what is trained; other trainings say less

    @classmethod
    def of(cls, table: StepTable, training: str) -> "Spots":
        return cls(
            table.gpus,
            table.nodes,
            table.batch_per_gpu,
            exchanged_share(table),
            np.log(step_seconds(table)),
            (training,) * len(table.gpus),
        )

    def alike(self, others: "Spots") -> Floats:
        """1 for the same configuration, less the further apart; own configurations down."""
        doublings = np.abs(np.log2(self.gpus)[:, None] - np.log2(others.gpus))
        machines = np.abs(np.log2(self.nodes)[:, None] - np.log2(others.nodes)) / 2
        batches = np.abs(np.log(self.batch_per_gpu)[:, None] - np.log(others.batch_per_gpu))
        same = np.array(self.training)[:, None] == np.array(others.training)
        near = np.exp2(-(doublings + machines) / _DOUBLINGS - batches / _BATCHES)
        return np.asarray(np.where(same, near, _OTHER_TRAINING * near))

    def unexplained(self, tax: float) -> Floats:
        """One σ of what a stack with so much of a tax does not explain."""
        return _unexplained(self.gpus, self.exchanged, tax)

    def covariance(self, others: "Spots", compute: float, tax: float) -> Floats:
        """Of what such stacks do not explain; `compute` is the σ of one GPU's speed, which all share."""
        both = self.unexplained(tax)[:, None] * others.unexplained(tax)
        return np.asarray(compute**2 + both * self.alike(others))


@dataclass(frozen=True)
class Posterior:
    """What is expected of configurations, and how far it may be off."""

    log_seconds: Floats
    reach: Reach  # of rates


def posterior(
    wanted: Spots,
    measured: Spots,
    log_seconds: Floats,
    compute: float,
    prior: Floats,
) -> Posterior:
    """`log_seconds` of the measured configurations; `compute` is the σ of one GPU's speed."""
    weight = np.log(prior)
    means = wanted.log_seconds.copy()
    variance = np.empty((len(TAXES), len(wanted.gpus)))
    off = log_seconds - measured.log_seconds
    exact = _EXACT * np.eye(len(measured.gpus))
    for number, tax in enumerate(TAXES):
        like = slice(number, None, len(TAXES))  # the stacks of that tax
        variance[number] = compute**2 + wanted.unexplained(tax) ** 2
        if not len(measured.gpus):
            continue
        between = measured.covariance(measured, compute, tax) + exact
        inverse = np.linalg.inv(between)
        squares = np.einsum("si,ij,sj->s", off[like], inverse, off[like])
        weight[like] -= 0.5 * (squares + np.linalg.slogdet(between)[1])
        across = wanted.covariance(measured, compute, tax)
        gain = across @ inverse
        means[like] += off[like] @ gain.T
        variance[number] = np.maximum(variance[number] - np.sum(gain * across, axis=1), 0.0)
    weight = np.exp(weight - weight.max())
    return mixed(means, weight / weight.sum(), variance)


def reaching_all(middle: Posterior, others: Sequence[Posterior]) -> Posterior:
    """What the middle expects, with an interval that holds those of all others."""
    every = (middle, *others)
    slowest = np.max([one.log_seconds + one.reach.slow for one in every], axis=0)
    fastest = np.min([one.log_seconds - one.reach.fast for one in every], axis=0)
    expected = middle.log_seconds
    return Posterior(expected, Reach(slowest - expected, expected - fastest))


def _unexplained(gpus: Floats, exchanged: Floats, tax: float) -> Floats:
    doublings = np.minimum(np.log2(gpus), MOST_DOUBLINGS)
    by_any = np.hypot(UNEXPLAINED, OF_EXCHANGE * saturating(exchanged))
    return np.asarray(np.hypot(by_any, TAX_UNEVEN * tax * doublings))


def exchanged_share(table: StepTable) -> Floats:
    """What of each step its exchange takes, hidden or not."""
    parts = step_parts(table)
    return Distance.of(parts, table.gpus, table.accumulate * table.local_sgd).exchanged


def mixed(means: Floats, weight: Floats, variance: Floats) -> Posterior:
    """The middle and the ends of the stacks' own answers, each of which is off besides: `variance` is by tax (down)
    and configuration."""
    # rows down, in single precision: a plan asks for hundreds of thousands
    rows = np.ascontiguousarray(means.T, dtype=np.float32)
    order = np.argsort(rows, axis=1)
    share = np.cumsum(weight.astype(np.float32)[order], axis=1)
    row = np.arange(len(rows))

    def quantile(level: float) -> Floats:
        at = np.argmax(share >= level - 1e-6, axis=1)
        return np.asarray(means[order[row, at], row])

    middle = quantile(0.5)
    slow, fast = quantile(HIGH) - middle, middle - quantile(LOW)
    by_tax = weight.reshape(-1, len(TAXES)).sum(axis=0)
    other = NORMAL_90 * np.sqrt(by_tax @ variance + AGAIN**2)
    return Posterior(
        middle,
        Reach(np.hypot(np.maximum(slow, 0.0), other), np.hypot(np.maximum(fast, 0.0), other)),
    )


def under_framework(
    table: StepTable, seconds: Floats, any_stack: Reach, compute: Floats | float, framework: str
) -> Posterior:
    """Steps by what was published of a framework, which says where in the interval of any stack they lie. One GPU
    exchanges nothing: it stays as it is."""
    off = [_unexplained(table.gpus, exchanged_share(table), tax) for tax in TAXES]
    variance = np.square(compute) + np.square(off)
    found = mixed(np.log(step_seconds(table)), prior(framework), variance)
    reach = found.reach.within(any_stack, found.log_seconds - np.log(seconds))
    alone = table.gpus == 1
    return Posterior(
        np.where(alone, np.log(seconds), found.log_seconds),
        Reach(
            np.where(alone, any_stack.slow, reach.slow), np.where(alone, any_stack.fast, reach.fast)
        ),
    )
