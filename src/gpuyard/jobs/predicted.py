"""A job's scaling curve from the predictor: on as few machines as hold its GPUs, and what a split over more costs."""

from collections.abc import Sequence

import numpy as np

from gpuyard.errors import GpuyardError
from gpuyard.jobs.curve import Curve, SplitSpeed
from gpuyard.predict import predict, scenario_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.table import Placement
from gpuyard.specs import Cluster, Workload
from gpuyard.workloads.profiles import catalog_profile


def predicted_curve(workload: Workload, cluster: Cluster, most: int) -> Curve | None:
    """Samples a second with up to so many GPUs of the cluster; None where nobody can say, or nothing fits.

    Code of the user's own is not run for it.
    """
    try:
        profile = catalog_profile(workload)
        if profile is None:
            return None
        scenario = scenario_of(workload, profile, cluster)
        rack = _one_rack(cluster)
        in_rack = scenario if rack is None else scenario_of(workload, profile, rack)
        platform = scenario.platform
        counts = list(range(1, min(most, platform.nodes * platform.gpus_per_node) + 1))
        near = (cluster.nodes_per_rack or platform.nodes) * platform.gpus_per_node
        found = list(predict(in_rack, platform.placements(counts[:near], None), []).predictions)
        if len(counts) > near:
            far = platform.placements(counts[near:], None)
            found += predict(scenario, far, []).predictions
    except GpuyardError:
        return None
    fits = {one.gpus: one for one in found if scenario.fits(one.gpus)}
    if not fits:
        return None
    packed = np.zeros(counts[-1] + 1)
    for count, one in fits.items():
        packed[count] = one.samples_per_second
    # one interval for all: as wide as the widest, which is that of the most GPUs
    low = min(one.low / one.samples_per_second for one in fits.values())
    high = max(one.high / one.samples_per_second for one in fits.values())

    def split_by(scenario: PlatformScenario) -> SplitSpeed:
        known: dict[tuple[int, ...], float] = {}

        def split(by_machine: Sequence[int]) -> float:
            shape = tuple(by_machine)
            if shape not in known:
                placement = Placement(sum(shape), len(shape), max(shape))
                (there,) = predict(scenario, [placement], []).predictions
                known[shape] = there.samples_per_second if packed[sum(shape)] > 0 else 0.0
            return known[shape]

        return split

    across = None if rack is None else split_by(scenario)
    return Curve(packed, split_by(in_rack), across, low=min(1.0, low), high=max(1.0, high))


def _one_rack(cluster: Cluster) -> Cluster | None:
    """As machines at one switch see it, where that is more than the network between racks."""
    if cluster.nodes_per_rack is None or cluster.network is None:
        return None
    whole = cluster.network.model_copy(update={"oversubscription": 1.0})
    return cluster.model_copy(update={"network": whole})
