"""The interval of a prediction, and its correction by a user's own figures."""

from dataclasses import replace

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.effects import has_evidence
from gpuyard.predictor.large.evaluation import evaluate
from gpuyard.predictor.large.training import LargeTraining, MeasuredLayout
from gpuyard.specs import Cluster


def find_interval(
    training: LargeTraining, cluster: Cluster, gpu: Gpu
) -> tuple[float, float, float]:
    """Return the ends of the interval over the prediction, and the correction by figures of the same GPU."""
    fit = load_fit()
    ratios = [
        ratio
        for point in training.measured
        if point.gpu == gpu.id and (ratio := _measured_ratio(training, cluster, point))
    ]
    if ratios:
        return (*fit.spread_with_point, float(np.exp(np.mean(np.log(ratios)))))
    known = bool(has_evidence(fit, gpu, training.precision))
    return (*fit.spread[interval_kind(experts=training.shape.experts, known=known)], 1.0)


def interval_kind(*, experts: int, known: bool) -> str:
    """Return the kind of interval: of models with experts, or of dense ones whose GPU and precision were seen or not."""
    if experts:
        return "moe"
    return "dense/known" if known else "dense/unknown"


def _measured_ratio(
    training: LargeTraining, cluster: Cluster, point: MeasuredLayout
) -> float | None:
    """Return measured over predicted for a user's own figure, or None if such a cluster could not run it."""
    _, machine = resolve_machine(cluster)
    nodes = max(cluster.nodes, -(-point.gpus // machine.gpus))
    plain = replace(
        training, measured=(), choices=point.choices, global_batch=point.global_batch or training.global_batch
    )  # fmt: skip
    try:
        evaluation = evaluate(plain, cluster.model_copy(update={"nodes": nodes}), point.gpus)
    except UserMistake:  # one machine without a network cannot be two
        if nodes > cluster.nodes:
            return None
        raise
    return point.tokens_per_second / float(evaluation.tokens_per_second.max())
