"""Compare each run of a bench with its prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuyard.deploy.bench.plan import DeploymentBench, Series
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.hardware.clusters import find_network_rate
from gpuyard.measure.training.records import Measurement
from gpuyard.predictor import Placement, Prediction, create_scenario, predict
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.specs.cluster import Cluster
from gpuyard.workloads.profiles import profile_model

SATURATED_SHARE = 0.9
"""From this share of busy cores on, ranks wait for a core. The rest is lost to uneven load."""


@dataclass(frozen=True)
class BenchComparison:
    """A run and its prediction. Efficiency is relative to one GPU with the same strategy and batch size."""

    series: Series
    link_bytes_per_second: float | None
    nodes: int
    measurement: Measurement
    efficiency: float | None
    """None if no run with a single GPU was measured at this batch size."""
    predicted: Prediction

    @property
    def saturates_host(self) -> bool:
        """True if the cores of this host, which a lab's machines share, limited the run instead of the links."""
        busy = self.measurement.host_busy_share
        return self.measurement.synthetic is not None and (busy or 0.0) >= SATURATED_SHARE

    @property
    def ratio(self) -> float:
        return self.measurement.samples_per_second / self.predicted.samples_per_second


def compare(
    loaded: LoadedDeployment,
    bench: DeploymentBench,
    measurements: Sequence[Measurement],
    calibration: Calibration | None = None,
) -> list[BenchComparison]:
    """Return a comparison for each measured run, in the order in which the runs were planned."""
    by_key = {m.key: m for m in measurements}
    single_gpu: dict[tuple[str, int], list[float]] = {}
    for m in measurements:
        if m.workers == 1:
            key = (m.strategy, m.batch_per_worker)
            single_gpu.setdefault(key, []).append(m.samples_per_second)
    comparisons = []
    for sweep, series in zip(bench.matrix.sweeps, bench.series, strict=True):
        rate = sweep.place.record(1).link_bytes_per_second
        for point in sweep.points:
            run = by_key.get(point.key)
            if run is None:
                continue
            nodes = sweep.place.rank_positions(point.workers)[-1].node + 1
            single = single_gpu.get((sweep.strategy, point.batch_per_worker))
            efficiency = (
                run.samples_per_second / (point.workers * fmean(single)) if single else None
            )
            gpus = point.workers
            placement = Placement(gpus, nodes, -(-gpus // nodes))
            scenario = create_scenario(
                sweep.workload,
                profile_model(sweep.workload),
                _set_rate(loaded.cluster, rate),
                strategy=sweep.strategy,
                calibration=calibration,
            )
            (predicted,) = predict(scenario, [placement], [point.batch_per_worker]).predictions
            comparisons.append(BenchComparison(series, rate, nodes, run, efficiency, predicted))
    return comparisons


def _set_rate(cluster: Cluster, rate_bytes_per_second: float | None) -> Cluster:
    """Return the cluster with this link rate; its network stays the same otherwise."""
    network = cluster.network
    if network is None or rate_bytes_per_second in (None, find_network_rate(cluster)):
        return cluster
    slower = network.model_copy(update={"link": None, "rate": rate_bytes_per_second})
    return cluster.model_copy(update={"network": slower})
