"""A workload on a cluster with all but the number of GPUs decided: what remedies change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.predict.calibration.applied import calibrated_line, calibrated_platform
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.method import Method, method_of
from gpuyard.predict.placement import Placement
from gpuyard.predict.platform.platform import Platform, machine_of
from gpuyard.predict.platform.sharing import shared
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.step import Configurations, Floats, Traffic, step_parts
from gpuyard.predict.tables import configurations, memory_needed_bytes
from gpuyard.specs import DEFAULT_EXCHANGE, Cluster, ExchangeOptions, StrategyName, Workload


@dataclass(frozen=True)
class Setting:
    """One curve over the number of GPUs."""

    workload: Workload
    profile: ModelProfile
    cluster: Cluster
    gpu: Gpu
    platform: Platform
    line: ComputeLine
    batch_per_gpu: int
    strategy: StrategyName
    exchange: ExchangeOptions = DEFAULT_EXCHANGE
    calibration: Calibration | None = None

    @cached_property
    def method(self) -> Method:
        rate = self.platform.gpu_memory_bytes_per_second
        return method_of(self.profile, self.strategy, self.exchange, rate)

    @property
    def memory_bytes(self) -> float:
        return self.memory_bytes_at(self.batch_per_gpu)

    def memory_bytes_at(self, batch_per_gpu: int) -> float:
        needed = memory_needed_bytes(self.profile, self.workload, batch_per_gpu)
        return needed + self.method.memory_bytes

    def fits(self, batch_per_gpu: int) -> bool:
        there = self.platform.memory_bytes
        return there is None or self.memory_bytes_at(batch_per_gpu) <= there

    def configurations(self, placements: Sequence[Placement]) -> tuple[Configurations, Traffic]:
        rows = [(placement, self.batch_per_gpu) for placement in placements]
        return configurations(
            self.workload,
            self.profile,
            self.platform,
            self.line,
            rows,
            strategy=self.strategy,
            exchange=self.exchange,
        )

    def samples_per_second(self, placements: Sequence[Placement]) -> Floats:
        return throughput(*self.configurations(placements))

    def on(self, cluster: Cluster) -> "Setting":
        """The same on another cluster of the same GPUs."""
        same_links = machine_of(cluster) == machine_of(self.cluster)
        own = calibrated_platform(cluster, self.calibration, same_links=same_links)
        platform = shared(own, cluster, self.platform.beside)
        return replace(self, cluster=cluster, platform=platform)

    def with_strategy(self, strategy: StrategyName) -> "Setting":
        """The same by another strategy, with what it does by default."""
        return replace(self, strategy=strategy, exchange=DEFAULT_EXCHANGE)

    def exchanging(self, **changes: object) -> "Setting":
        """The same with something else chosen about the exchange."""
        return replace(self, exchange=self.exchange.model_copy(update=changes))


def setting_of(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    prediction: Prediction,
    calibration: Calibration | None = None,
) -> Setting:
    """What a prediction was made for."""
    gpu, _ = machine_of(cluster)
    return Setting(
        workload=workload,
        profile=profile,
        cluster=cluster,
        gpu=gpu,
        platform=shared(calibrated_platform(cluster, calibration), cluster, prediction.beside),
        line=calibrated_line(workload, profile, gpu, calibration),
        batch_per_gpu=prediction.batch_per_gpu,
        strategy=prediction.strategy,
        exchange=prediction.exchange,
        calibration=calibration,
    )


def throughput(table: Configurations, traffic: Traffic) -> Floats:
    """Samples a second of every row."""
    return table.gpus * table.batch_per_gpu / step_parts(table, traffic).step_seconds
