"""From measured figures to a prediction of other configurations.

Every stack of the grid is weighed by how well it explains what was measured. What none of them explains is a
smooth difference between configurations, larger the further two of them are apart, and a common factor
where one GPU's own speed was not measured. So a configuration that was measured gets its own figure back,
and one far from all of them what the likeliest stacks say.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.predict.interval import NORMAL_90, Reach
from gpuyard.predict.table import Floats

# one σ of what no stack of the grid explains, and how far apart two configurations are half alike in it
UNEXPLAINED = 0.085
_DOUBLINGS, _BATCHES = 1.5, 1.0  # of GPUs; e times the batch
# one σ between two runs of the same configuration
AGAIN = 0.0142
_OTHER_TRAINING = 0.3
_EXACT = 1e-6
LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True)
class Spots:
    """Configurations: where they are, and what each stack makes of them."""

    gpus: Floats
    nodes: Floats
    batch_per_gpu: Floats
    log_seconds: Floats  # stacks down, configurations across
    training: tuple[str, ...]  # what is trained; other trainings say less

    def alike(self, others: "Spots") -> Floats:
        """1 for the same configuration, less the further apart; own configurations down."""
        doublings = np.abs(np.log2(self.gpus)[:, None] - np.log2(others.gpus))
        machines = np.abs(np.log2(self.nodes)[:, None] - np.log2(others.nodes))
        batches = np.abs(np.log(self.batch_per_gpu)[:, None] - np.log(others.batch_per_gpu))
        same = np.array(self.training)[:, None] == np.array(others.training)
        near = np.exp2(-(doublings + machines / 2) / _DOUBLINGS - batches / _BATCHES)
        return np.asarray(np.where(same, near, _OTHER_TRAINING * near))

    def covariance(self, others: "Spots", compute: float) -> Floats:
        """Of what no stack explains; `compute` is the σ of one GPU's speed, which all share."""
        return np.asarray(compute**2 + UNEXPLAINED**2 * self.alike(others))


@dataclass(frozen=True)
class Posterior:
    """What is expected of configurations, and how far it may be off."""

    log_seconds: Floats
    reach: Reach  # of rates


def posterior(
    wanted: Spots, measured: Spots, log_seconds: Floats, compute: float, prior: Floats
) -> Posterior:
    """`log_seconds` of the measured configurations; `compute` is the σ of one GPU's speed."""
    weight = np.log(prior)
    means = wanted.log_seconds
    variance = np.full(len(wanted.gpus), compute**2 + UNEXPLAINED**2)
    if len(measured.gpus):
        between = measured.covariance(measured, compute) + _EXACT * np.eye(len(measured.gpus))
        off = log_seconds - measured.log_seconds
        weight = weight - 0.5 * np.einsum("si,ij,sj->s", off, np.linalg.inv(between), off)
        across = wanted.covariance(measured, compute)
        gain = across @ np.linalg.inv(between)
        means = means + off @ gain.T
        variance = np.maximum(variance - np.sum(gain * across, axis=1), 0.0)
    weight = np.exp(weight - weight.max())
    return mixed(means, weight / weight.sum(), np.sqrt(variance + AGAIN**2))


def mixed(means: Floats, weight: Floats, sigma: Floats) -> Posterior:
    """The middle and the ends of the stacks' own answers, each of which is off by σ besides."""
    order = np.argsort(means, axis=0)
    sorted_means = np.take_along_axis(means, order, axis=0)
    share = np.cumsum(weight[order], axis=0)

    def quantile(level: float) -> Floats:
        at = np.argmax(share >= level - 1e-12, axis=0)
        return np.asarray(np.take_along_axis(sorted_means, at[None], axis=0)[0])

    middle = quantile(0.5)
    slow, fast = quantile(HIGH) - middle, middle - quantile(LOW)
    other = NORMAL_90 * sigma
    return Posterior(
        middle,
        Reach(np.hypot(np.maximum(slow, 0.0), other), np.hypot(np.maximum(fast, 0.0), other)),
    )
