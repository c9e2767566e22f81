"""Predict a job's scaling curve: packed on as few machines as possible, and split over more."""

from collections.abc import Sequence

import numpy as np

from gpuyard.errors import GpuyardError
from gpuyard.policies.curve import Curve, SplitSpeed, StepParts
from gpuyard.predictor import Placement, PlatformScenario, Prediction, create_scenario, predict
from gpuyard.specs import Cluster, Workload
from gpuyard.workloads.profiles import catalog_profile


def predict_curve(workload: Workload, cluster: Cluster, max_gpus: int) -> Curve | None:
    """Predict samples per second with up to `max_gpus` of the cluster's GPUs.

    Return None if the workload cannot be predicted or does not fit in memory. The user's own code is never run.
    """
    try:
        profile = catalog_profile(workload)
        if profile is None:
            return None
        scenario = create_scenario(workload, profile, cluster)
        rack = _as_one_rack(cluster)
        in_rack = scenario if rack is None else create_scenario(workload, profile, rack)
        platform = scenario.platform
        counts = list(range(1, min(max_gpus, platform.nodes * platform.gpus_per_node) + 1))
        rack_gpus = (cluster.nodes_per_rack or platform.nodes) * platform.gpus_per_node
        near = platform.placements(counts[:rack_gpus], None)
        predictions = list(predict(in_rack, near, []).predictions)
        if len(counts) > rack_gpus:
            far = platform.placements(counts[rack_gpus:], None)
            predictions += predict(scenario, far, []).predictions
    except GpuyardError:
        return None
    fitting = [prediction for prediction in predictions if scenario.fits(prediction.gpus)]
    if not fitting:
        return None
    packed = np.zeros(counts[-1] + 1)
    for prediction in fitting:
        packed[prediction.gpus] = prediction.samples_per_second
    # one interval for the whole curve: the widest, which is that of the most GPUs
    low = min(prediction.low / prediction.samples_per_second for prediction in fitting)
    high = max(prediction.high / prediction.samples_per_second for prediction in fitting)

    def build_split_speed(scenario: PlatformScenario) -> SplitSpeed:
        cache: dict[tuple[int, ...], float] = {}

        def split_speed(by_machine: Sequence[int]) -> float:
            shape = tuple(by_machine)
            if shape not in cache:
                placement = Placement(sum(shape), len(shape), max(shape))
                (prediction,) = predict(scenario, [placement], []).predictions
                cache[shape] = prediction.samples_per_second if packed[sum(shape)] > 0 else 0.0
            return cache[shape]

        return split_speed

    across = None if rack is None else build_split_speed(scenario)
    parts = {prediction.gpus: _describe_step(prediction) for prediction in fitting}
    split = build_split_speed(in_rack)
    return Curve(packed, split, across, low=min(1.0, low), high=max(1.0, high), parts=parts)


def _describe_step(prediction: Prediction) -> StepParts:
    step = prediction.step
    exchange = max(prediction.exchange_seconds, step.exposed_communication_seconds)
    samples = float(prediction.batch_per_gpu * prediction.gpus)
    return StepParts(samples, step.compute_seconds, exchange)


def _as_one_rack(cluster: Cluster) -> Cluster | None:
    """Return the cluster with the network inside one rack, or None if it does not differ from the whole."""
    if cluster.nodes_per_rack is None or cluster.network is None:
        return None
    network = cluster.network.model_copy(update={"oversubscription": 1.0})
    return cluster.model_copy(update={"network": network})
