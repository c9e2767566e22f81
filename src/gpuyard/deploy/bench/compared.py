"""Each run of a bench beside what was predicted for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuyard.deploy.bench.plan import DeploymentBench, Series
from gpuyard.deploy.deployment import Opened
from gpuyard.hardware.clusters import network_rate
from gpuyard.measure.training.records import Measurement
from gpuyard.predict import Calibration, Placement, Prediction, predict, scenario_of
from gpuyard.specs import Network
from gpuyard.specs.cluster import Cluster
from gpuyard.workloads.profiles import profile_of


@dataclass(frozen=True)
class Compared:
    """One run and its prediction; efficiency is against one GPU at the same batch, of the same kind."""

    series: Series
    link_bytes_per_second: float | None
    nodes: int
    measurement: Measurement
    efficiency: float | None
    """None: one GPU alone was not measured at this batch."""
    predicted: Prediction

    @property
    def ratio(self) -> float:
        return self.measurement.samples_per_second / self.predicted.samples_per_second


def compare(
    opened: Opened,
    bench: DeploymentBench,
    measurements: Sequence[Measurement],
    calibration: Calibration | None = None,
) -> list[Compared]:
    """In the order in which they were planned."""
    by_key = {m.key: m for m in measurements}
    alone: dict[int, list[float]] = {}
    for m in measurements:
        if m.workers == 1:
            alone.setdefault(m.batch_per_worker, []).append(m.samples_per_second)
    found = []
    for sweep, series in zip(bench.matrix.sweeps, bench.series, strict=True):
        rate = sweep.place.record(1).link_bytes_per_second
        for point in sweep.points:
            run = by_key.get(point.key)
            if run is None:
                continue
            nodes = sweep.place.seats(point.workers)[-1].node + 1
            single = alone.get(point.batch_per_worker)
            efficiency = (
                run.samples_per_second / (point.workers * fmean(single)) if single else None
            )
            gpus = point.workers
            placement = Placement(gpus, nodes, -(-gpus // nodes))
            scenario = scenario_of(
                sweep.workload,
                profile_of(sweep.workload),
                _cluster_at(opened.cluster, rate),
                calibration=calibration,
            )
            (predicted,) = predict(scenario, [placement], [point.batch_per_worker]).predictions
            found.append(Compared(series, rate, nodes, run, efficiency, predicted))
    return found


def _cluster_at(cluster: Cluster, rate: float | None) -> Cluster:
    """With links of this speed; what else its network has stays."""
    network = cluster.network
    if rate is None or network is None:
        return cluster
    if rate == network_rate(cluster):
        return cluster
    known = network.model_dump(exclude={"link", "rate"}, exclude_defaults=True)
    slower = Network.model_construct(**{**Network(rate=f"{8 * rate} bit/s").model_dump(), **known})
    return cluster.model_copy(update={"network": slower})
