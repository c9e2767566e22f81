"""The interval of a prediction, and its correction by a user's own figures."""

from dataclasses import replace

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.constants import LargeFit, load_fit
from gpuyard.predictor.large.effects import has_evidence
from gpuyard.predictor.large.evaluation import evaluate, select_layout
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.large.row_hardware import parse_cluster
from gpuyard.predictor.large.rules import find_contradiction
from gpuyard.predictor.large.training import LargeTraining, MeasuredLayout
from gpuyard.specs import Cluster

_COMPARED = ("tensor", "pipeline", "context", "expert", "micro_batch", "recompute")
_WEIGHT_PER_DIFFERENCE, _MIN_WEIGHT = 0.2, 0.4  # best on publishers left out of the fit


def find_interval(
    training: LargeTraining, cluster: Cluster, gpu: Gpu, layout: Layout
) -> tuple[float, float, float]:
    """Return the ends of the interval over the prediction, and the correction by figures of the same GPU."""
    fit = load_fit()
    corrections = [
        correction
        for point in training.measured
        if point.gpu == gpu.id
        and (correction := _correct(training, cluster, point, layout)) is not None
    ]
    experts = training.shape.experts
    kind = interval_kind(
        experts=experts, known=bool(has_evidence(fit, gpu, training.precision, experts))
    )
    if not corrections:
        return (*fit.spread[kind], 1.0)
    differences = min(count for count, _ in corrections)
    factor = float(np.exp(np.mean([correction for _, correction in corrections])))
    return (*narrow_interval(fit, kind, differences), factor)


def interval_kind(*, experts: int, known: bool) -> str:
    """Return the kind of interval: with experts or dense, on a kind of GPU that was seen or not."""
    return f"{'moe' if experts else 'dense'}/{'known' if known else 'unknown'}"


def narrow_interval(fit: LargeFit, kind: str, differences: int) -> tuple[float, float]:
    """Return the interval after a measured figure whose layout differs in some parts; never wider than without it."""
    low, high = fit.spread[kind]
    measured = fit.spread_with_point[min(differences, len(fit.spread_with_point) - 1)]
    return max(low, measured[0]), min(high, measured[1])


def count_differences(layout: Layout, measured: Layout) -> int:
    """Return the number of parts in which a layout differs from a measured one."""
    return sum(bool(getattr(layout, n) != getattr(measured, n)) for n in _COMPARED)


def correction_weight(layout: Layout, measured: Layout) -> float:
    """Return the power of a measured correction: 1 for the same layout, and less for each part that differs."""
    return max(_MIN_WEIGHT, 1 - _WEIGHT_PER_DIFFERENCE * count_differences(layout, measured))


def _correct(
    training: LargeTraining, cluster: Cluster, point: MeasuredLayout, layout: Layout
) -> tuple[int, float] | None:
    """Return the parts in which a figure's layout differs, and the logarithm of its correction.

    A figure does not name its machines. They were like those of the cluster or like the usual ones with this GPU,
    whichever explains the figure better. Return None if neither could run it.
    """
    gpu, machine = resolve_machine(cluster)
    nodes = max(cluster.nodes, -(-point.gpus // machine.gpus))
    own, usual = cluster.model_copy(update={"nodes": nodes}), parse_cluster(gpu, point.gpus, {})
    # a figure may have been measured with another strategy than the predicted one
    other = find_contradiction(training.strategy, point.choices)
    plain = replace(
        training, measured=(), choices=point.choices, strategy="auto" if other else training.strategy,
        global_batch=point.global_batch or training.global_batch,
    )  # fmt: skip
    compared = []
    for machines in (own, usual):
        try:
            compared.append(_compare(plain, machines, point))
        except UserMistake:  # one machine without a network cannot be two
            if nodes == cluster.nodes:
                raise
    if not compared:
        return None
    ratio, measured = min(compared, key=lambda pair: abs(pair[0]))
    return count_differences(layout, measured), correction_weight(layout, measured) * ratio


def _compare(
    training: LargeTraining, cluster: Cluster, point: MeasuredLayout
) -> tuple[float, Layout]:
    """Return the logarithm of measured over predicted, and the layout that was predicted."""
    evaluation = evaluate(training, cluster, point.gpus)
    fastest = int(evaluation.tokens_per_second.argmax())
    ratio = point.tokens_per_second / float(evaluation.tokens_per_second[fastest])
    return float(np.log(ratio)), select_layout(evaluation.layouts, fastest)
