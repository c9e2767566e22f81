"""A workload on a cluster with all but the number of GPUs decided: what remedies change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.predict.calibration.applied import calibrated_line, calibrated_platform
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.placement import Placement
from gpuyard.predict.platform import Platform, machine_of
from gpuyard.predict.predictor import configurations, memory_needed_bytes
from gpuyard.predict.step import Configurations, Floats, Traffic, step_parts
from gpuyard.specs import Cluster, Strategy, Workload


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
    strategy: Strategy
    calibration: Calibration | None = None

    @property
    def memory_bytes(self) -> float:
        return self.memory_bytes_at(self.batch_per_gpu)

    def memory_bytes_at(self, batch_per_gpu: int) -> float:
        return memory_needed_bytes(self.profile, self.workload, batch_per_gpu)

    def fits(self, batch_per_gpu: int) -> bool:
        there = self.platform.memory_bytes
        return there is None or self.memory_bytes_at(batch_per_gpu) <= there

    def configurations(self, placements: Sequence[Placement]) -> tuple[Configurations, Traffic]:
        rows = [(placement, self.batch_per_gpu) for placement in placements]
        return configurations(
            self.workload, self.profile, self.platform, self.line, rows, strategy=self.strategy
        )

    def samples_per_second(self, placements: Sequence[Placement]) -> Floats:
        return throughput(*self.configurations(placements))

    def on(self, cluster: Cluster) -> "Setting":
        """The same on another cluster of the same GPUs."""
        same_links = machine_of(cluster) == machine_of(self.cluster)
        platform = calibrated_platform(cluster, self.calibration, same_links=same_links)
        return replace(self, cluster=cluster, platform=platform)


def setting_of(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    batch_per_gpu: int,
    strategy: Strategy,
    *,
    calibration: Calibration | None = None,
) -> Setting:
    gpu, _ = machine_of(cluster)
    return Setting(
        workload=workload,
        profile=profile,
        cluster=cluster,
        gpu=gpu,
        platform=calibrated_platform(cluster, calibration),
        line=calibrated_line(workload, profile, gpu, calibration),
        batch_per_gpu=batch_per_gpu,
        strategy=strategy,
        calibration=calibration,
    )


def throughput(table: Configurations, traffic: Traffic) -> Floats:
    """Samples a second of every row."""
    return table.gpus * table.batch_per_gpu / step_parts(table, traffic).step_seconds
