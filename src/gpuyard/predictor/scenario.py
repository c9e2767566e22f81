"""A scenario: a workload on given hardware with a strategy.

It determines everything except the number of GPUs. Every prediction is made from the table that it builds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor import constants as c
from gpuyard.predictor.compute import (
    ComputeLine,
    change_workload_precision,
    estimate_compute_line,
    estimate_from_published,
    resolve_precision,
)
from gpuyard.predictor.constants import Constant, Tuning, load_tuning
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.platform import Platform, create_platform, share_platform
from gpuyard.predictor.strategies import STRATEGIES, Strategy
from gpuyard.predictor.table import (
    Buckets,
    Configurations,
    Floats,
    HardwareRates,
    StepTable,
    Traffic,
    samples_per_second,
)
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    Cluster,
    Dataset,
    ExchangeOptions,
    Precision,
    Workload,
)

if TYPE_CHECKING:
    from gpuyard.predictor.calibration.document import Calibration


class PlatformLike(Protocol):
    """The interface of `Platform` and `Fleet`."""

    def resolve_constant(self, default: Constant) -> Constant: ...
    def find_rates(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates: ...


class ComputeLineLike(Protocol):
    """The compute time of a single GPU: one line, or one for every entry of a fleet."""

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class Scenario:
    """Workload × hardware × strategy. Unsupported options of the strategy raise an error."""

    workload: Workload
    profile: ModelProfile
    platform: PlatformLike
    line: ComputeLineLike
    strategy: Strategy
    exchange: ExchangeOptions = DEFAULT_EXCHANGE
    # measured here, including all interference between workers; None: the strategy's default
    overlap: Constant | None = None
    variation: Constant = c.GPU_VARIATION
    tuning: Tuning = field(default_factory=load_tuning)

    def __post_init__(self) -> None:
        strategy, narrow = self.strategy, self.workload.gradient_dtype in ("fp16", "bf16")
        conflict = strategy.find_conflict(self.exchange)
        if narrow and "compress" not in strategy.options:
            conflict = conflict or strategy.unsupported_option.format("gradient_dtype")
        if conflict:
            raise UserMistake(conflict)

    @cached_property
    def buckets(self) -> Buckets:
        return self.strategy.buckets(self.profile, self.exchange)

    @property
    def overlaps(self) -> tuple[Constant, Constant]:
        """The hidden shares of an exchange inside a machine and between machines."""
        if self.overlap is not None:
            return self.overlap, self.overlap
        inside = self.strategy.overlap(self.tuning)
        if self.strategy.calibrated:
            inside = self.platform.resolve_constant(inside)
        return inside, self.strategy.overlap_between(self.tuning)

    @property
    def slowdowns(self) -> tuple[Constant, ...]:
        return () if self.overlap is not None else self.strategy.slowdowns(self.tuning)

    @property
    def step_variation(self) -> Constant:
        """The variation between workers: that of the workload's samples, or the default."""
        default, dataset = self.platform.resolve_constant(self.variation), self.workload.dataset
        if dataset is None or dataset.variation is None:
            return default
        source = "the workload's dataset.variation"
        return Constant(default.name, dataset.variation, default.unit, "given", source)

    def build_table(self, rows: Configurations) -> StepTable:
        """Build the table that the step model computes with."""
        strategy, exchange = self.strategy, self.exchange
        rates = self.platform.find_rates(rows, self.workload.dataset)
        fixed, per_sample = self.line.columns(rows)
        extra = strategy.gpu_seconds(self.profile, exchange, rates.gpu_memory_bytes_per_second)
        if extra is not None:
            # one GPU has nothing to exchange
            fixed = fixed + np.where(rows.nodes * rows.gpus_per_node > 1, extra, 0.0)
        return StepTable(
            traffic=self._traffic,
            nodes=rows.nodes,
            gpus_per_node=rows.gpus_per_node,
            batch_per_gpu=rows.batch_per_gpu,
            fixed_seconds=fixed,
            seconds_per_sample=per_sample,
            host_overhead_seconds=strategy.host_seconds(self.profile, rows.gpus_per_node),
            accumulate=np.array(float(exchange.accumulate)),
            local_sgd=np.array(float(exchange.local_sgd)),
            sent_share=np.array(strategy.sent_share(self.workload, exchange)),
            **vars(rates),
        )

    @cached_property
    def _traffic(self) -> Traffic:
        dataset, platform = self.workload.dataset, self.platform
        stored = dataset.bytes_per_sample if dataset else None
        inside, between = self.overlaps
        slowdowns = {constant.name: constant.value for constant in self.slowdowns}
        return Traffic(
            strategy=self.strategy,
            buckets=self.buckets,
            input_bytes_per_sample=self.profile.input_bytes,
            storage_bytes_per_sample=self.profile.input_bytes if stored is None else stored,
            overlap=inside.value,
            overlap_between=between.value,
            backward_share=platform.resolve_constant(c.backward_share(self.tuning)).value,
            variation=self.step_variation.value if self.strategy.synchronous else 0.0,
            slowdown=slowdowns.get("slowdown", 0.0),
            slowdown_between=slowdowns.get("slowdown_between", 0.0),
            launch_seconds=platform.resolve_constant(c.launch(self.tuning)).value,
            preprocess_seconds=(dataset.preprocess if dataset else None) or 0.0,
            hierarchical=self.exchange.hierarchical,
        )


@dataclass(frozen=True)
class PlatformScenario(Scenario):
    """A scenario on identical machines, usually those of a described cluster."""

    platform: Platform
    line: ComputeLine
    cluster: Cluster | None = None  # None: known only from measurements
    calibration: "Calibration | None" = None
    graph: MachineGraph | None = None  # discovered wiring of the machines, if known

    @property
    def gpu(self) -> Gpu | None:
        return resolve_machine(self.cluster)[0] if self.cluster else None

    @property
    def precision(self) -> Precision:
        """The training precision on this hardware."""
        return resolve_precision(self.gpu, self.workload, self.profile)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All constants that the scenario uses."""
        of_exchange = map(self.platform.resolve_constant, self.strategy.constants)
        of_input = self.platform.input_constants(self.workload.dataset)
        return (*self.line.constants, *self.platform.constants, *of_exchange, *self.overlaps,
                self.step_variation, *self.slowdowns, *of_input)  # fmt: skip

    def build_placement_table(self, placements: Sequence[Placement]) -> StepTable:
        """Build a table with one row per placement, at the workload's own batch."""
        batch = self.workload.batch_per_gpu
        return self.build_table(
            Configurations.from_pairs([(placement, batch) for placement in placements])
        )

    def default_gpu_counts(self, gpus_per_node: int | None = None) -> list[int]:
        """Return the default numbers of GPUs: doubling each time, plus the total."""
        platform, limit = self.platform, self.strategy.max_machines
        nodes = platform.nodes if limit is None else min(limit, platform.nodes)
        total = nodes * (gpus_per_node or platform.gpus_per_node)
        if gpus_per_node is None and platform.other_jobs:
            total = max(1, platform.gpus_per_node // (platform.other_jobs + 1))
        smallest = gpus_per_node or 1
        doublings = range(max(0, total // smallest).bit_length())
        return sorted({smallest * 2**n for n in doublings} | {max(total, smallest)})

    def samples_per_second(self, placements: Sequence[Placement]) -> Floats:
        return samples_per_second(self.build_placement_table(placements))

    def memory_bytes(self, gpus: int, batch_per_gpu: int | None = None) -> float:
        """Return the memory needed per GPU."""
        batch = self.workload.batch_per_gpu if batch_per_gpu is None else batch_per_gpu
        return float(
            self.strategy.memory_bytes(
                self.workload,
                self.profile,
                self.exchange,
                batch_per_gpu=np.array(float(batch)),
                gpus=np.array(float(gpus)),
            )
        )

    def fits(self, gpus: int) -> bool:
        available = self.platform.memory_bytes
        return available is None or self.memory_bytes(gpus) <= available

    def largest_batch(self, gpus: int) -> int | None:
        """Return the largest batch that fits, 0 if not even one sample does, None if the memory is unknown."""
        available, fixed = self.platform.memory_bytes, self.memory_bytes(gpus, 0)
        if available is None:
            return None
        per_sample = self.memory_bytes(gpus, 1) - fixed
        return max(0, int((available - fixed) // per_sample)) if per_sample > 0 else None

    def change_batch(self, batch_per_gpu: int) -> "PlatformScenario":
        workload = self.workload.model_copy(update={"batch_per_gpu": batch_per_gpu})
        return replace(self, workload=workload)

    def change_precision(self, precision: Precision) -> "PlatformScenario":
        """Return the scenario in another precision; the GPU must be described."""
        if self.gpu is None:
            raise ValueError("the speed of this hardware in another precision is unknown")
        workload = change_workload_precision(self.workload, self.profile, precision)
        line = find_compute_line(workload, self.profile, self.gpu, self.calibration)
        return replace(self, workload=workload, line=line)

    def change_software(self, option: str) -> "PlatformScenario":
        """Return the scenario with `channels_last`, `compile`, or `fused_attention`; the GPU must be described.

        Figures were measured without the option, so the line changes by the ratio of two estimates.
        """
        if self.gpu is None:
            raise ValueError("the effect on hardware that is not described is unknown")
        workload = self.workload.model_copy(update={option: True})
        before, after = (
            estimate_from_published(w, self.profile, self.gpu, self.precision)
            for w in (self.workload, workload)
        )
        line = self.line.scale(after.seconds_per_sample / before.seconds_per_sample)
        return replace(self, workload=workload, line=line)

    def change_strategy(self, name: str) -> Self:
        """Return the scenario with another strategy and its default options."""
        return replace(self, strategy=STRATEGIES[name], exchange=DEFAULT_EXCHANGE)

    def change_exchange(self, **changes: object) -> Self:
        """Return the scenario with changed exchange options."""
        return replace(self, exchange=self.exchange.model_copy(update=changes))

    def change_cluster(self, cluster: Cluster) -> "PlatformScenario":
        """Return the scenario on another cluster with the same GPUs."""
        same_links = self.cluster is not None and resolve_machine(cluster) == resolve_machine(
            self.cluster
        )
        graph = self.graph if same_links else None
        unshared = _create_platform(cluster, self.calibration, graph, same_links=same_links)
        platform = share_platform(unshared, cluster, self.platform.other_jobs, graph)
        return replace(self, cluster=cluster, platform=platform, graph=graph)


def create_scenario(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    *,
    strategy: str = DEFAULT_STRATEGY,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    other_jobs: int = 0,
    calibration: "Calibration | None" = None,
    graph: MachineGraph | None = None,
) -> PlatformScenario:
    """Create the scenario of a workload on a described cluster that `other_jobs` identical jobs share."""
    gpu, _ = resolve_machine(cluster)
    platform = _create_platform(cluster, calibration, graph)
    return PlatformScenario(
        workload=workload,
        profile=profile,
        platform=share_platform(platform, cluster, other_jobs, graph),
        line=find_compute_line(workload, profile, gpu, calibration),
        strategy=STRATEGIES[strategy],
        exchange=exchange,
        cluster=cluster,
        calibration=calibration,
        graph=graph,
    )


def find_compute_line(
    workload: Workload, profile: ModelProfile, gpu: Gpu, calibration: "Calibration | None"
) -> ComputeLine:
    """Return the best known compute time of a single GPU."""
    if calibration is None:
        return estimate_compute_line(workload, profile, gpu)
    from gpuyard.predictor.calibration.applied import calibrated_line

    return calibrated_line(workload, profile, gpu, calibration)


def _create_platform(
    cluster: Cluster,
    calibration: "Calibration | None",
    graph: MachineGraph | None,
    *,
    same_links: bool = True,
) -> Platform:
    if calibration is None:
        return create_platform(cluster, graph)
    from gpuyard.predictor.calibration.applied import calibrated_platform

    return calibrated_platform(cluster, calibration, same_links=same_links, graph=graph)
