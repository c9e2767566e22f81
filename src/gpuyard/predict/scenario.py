"""A scenario: what is trained, on what hardware and how. All but the number of GPUs is decided, and every
prediction is made from the table that it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict import constants as c
from gpuyard.predict.calibration.applied import calibrated_line, calibrated_platform
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.compute import ComputeLine, at_precision, compute_line, precision_on
from gpuyard.predict.constants import Constant, Tuning, fitted
from gpuyard.predict.platform import Platform, platform_of, shared
from gpuyard.predict.strategies import STRATEGIES, Strategy
from gpuyard.predict.table import (
    Buckets,
    Configurations,
    Floats,
    HardwareRates,
    Placement,
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


class AnyPlatform(Protocol):
    """A platform, or a fleet."""

    def constant(self, default: Constant) -> Constant: ...
    def links(self, rows: Configurations, dataset: Dataset | None) -> HardwareRates: ...


class AnyLine(Protocol):
    """What a GPU takes alone: a line, or one for every spot of a fleet."""

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class Scenario:
    """Workload × hardware × strategy. Raises where the strategy does not have the options."""

    workload: Workload
    profile: ModelProfile
    platform: AnyPlatform
    line: AnyLine
    strategy: Strategy
    exchange: ExchangeOptions = DEFAULT_EXCHANGE
    # as it is where this runs, with all that workers do to each other; None: by the strategy
    overlap: Constant | None = None
    variation: Constant = c.GPU_VARIATION
    tuning: Tuning = field(default_factory=fitted)

    def __post_init__(self) -> None:
        strategy, narrow = self.strategy, self.workload.gradient_dtype in ("fp16", "bf16")
        refusal = strategy.refusal(self.exchange)
        if narrow and "compress" not in strategy.options:
            refusal = refusal or strategy.no_other_option.format("gradient_dtype")
        if refusal:
            raise UserMistake(refusal)

    @cached_property
    def buckets(self) -> Buckets:
        return self.strategy.buckets(self.profile, self.exchange)

    @property
    def overlaps(self) -> tuple[Constant, Constant]:
        """What hides of an exchange, inside a machine and between machines."""
        if self.overlap is not None:
            return self.overlap, self.overlap
        inside = self.strategy.overlap(self.tuning)
        if self.strategy.calibrated:
            inside = self.platform.constant(inside)
        return inside, self.strategy.overlap_between(self.tuning)

    @property
    def slowdowns(self) -> tuple[Constant, ...]:
        return () if self.overlap is not None else self.strategy.slowdowns(self.tuning)

    @property
    def varied(self) -> Constant:
        """What the workload says of its samples, or what is usual."""
        usual, dataset = self.platform.constant(self.variation), self.workload.dataset
        if dataset is None or dataset.variation is None:
            return usual
        source = "the workload's dataset.variation"
        return Constant(usual.name, dataset.variation, usual.unit, "given", source)

    def table(self, rows: Configurations) -> StepTable:
        """What the step model reckons with."""
        strategy, exchange = self.strategy, self.exchange
        links = self.platform.links(rows, self.workload.dataset)
        fixed, per_sample = self.line.columns(rows)
        more = strategy.gpu_seconds(self.profile, exchange, links.gpu_memory_bytes_per_second)
        if more is not None:
            # one GPU has nothing to exchange
            fixed = fixed + np.where(rows.nodes * rows.gpus_per_node > 1, more, 0.0)
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
            **vars(links),
        )

    @cached_property
    def _traffic(self) -> Traffic:
        dataset, platform = self.workload.dataset, self.platform
        stored = dataset.bytes_per_sample if dataset else None
        inside, between = self.overlaps
        slower = {constant.name: constant.value for constant in self.slowdowns}
        return Traffic(
            strategy=self.strategy,
            buckets=self.buckets,
            input_bytes_per_sample=self.profile.input_bytes,
            storage_bytes_per_sample=self.profile.input_bytes if stored is None else stored,
            overlap=inside.value,
            overlap_between=between.value,
            backward_share=platform.constant(c.backward_share(self.tuning)).value,
            variation=self.varied.value if self.strategy.synchronous else 0.0,
            slowdown=slower.get("slowdown", 0.0),
            slowdown_between=slower.get("slowdown_between", 0.0),
            launch_seconds=platform.constant(c.launch(self.tuning)).value,
            preprocess_seconds=(dataset.preprocess if dataset else None) or 0.0,
            hierarchical=self.exchange.hierarchical,
        )


@dataclass(frozen=True)
class PlatformScenario(Scenario):
    """On machines of one kind, where jobs can be placed; of a described cluster, which could be another."""

    platform: Platform
    line: ComputeLine
    cluster: Cluster | None = None  # None: it is known by what was measured on it
    calibration: Calibration | None = None
    graph: MachineGraph | None = None  # how the machines are wired, where somebody looked

    @property
    def gpu(self) -> Gpu | None:
        return machine_of(self.cluster)[0] if self.cluster else None

    @property
    def precision(self) -> Precision:
        """In which it trains on this hardware."""
        return precision_on(self.gpu, self.workload, self.profile)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All that it stands on."""
        of_exchange = map(self.platform.constant, self.strategy.constants)
        of_input = self.platform.input_constants(self.workload.dataset)
        return (*self.line.constants, *self.platform.constants, *of_exchange, *self.overlaps,
                self.varied, *self.slowdowns, *of_input)  # fmt: skip

    def at(self, placements: Sequence[Placement]) -> StepTable:
        """One row a placement, at the workload's own batch."""
        batch = self.workload.batch_per_gpu
        return self.table(Configurations.of([(placement, batch) for placement in placements]))

    def usual_counts(self, gpus_per_node: int | None = None) -> list[int]:
        """Numbers of GPUs to look at where nobody says which: twice as many each time, and all that there are."""
        platform, most = self.platform, self.strategy.most_machines
        nodes = platform.nodes if most is None else min(most, platform.nodes)
        total = nodes * (gpus_per_node or platform.gpus_per_node)
        if gpus_per_node is None and platform.other_jobs:
            total = max(1, platform.gpus_per_node // (platform.other_jobs + 1))
        least = gpus_per_node or 1
        doublings = range(max(0, total // least).bit_length())
        return sorted({least * 2**n for n in doublings} | {max(total, least)})

    def samples_per_second(self, placements: Sequence[Placement]) -> Floats:
        return samples_per_second(self.at(placements))

    def memory_bytes(self, gpus: int, batch_per_gpu: int | None = None) -> float:
        """Of each of so many GPUs."""
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
        there = self.platform.memory_bytes
        return there is None or self.memory_bytes(gpus) <= there

    def largest_batch(self, gpus: int) -> int | None:
        """That fits; 0 where not even one sample does, None where nobody knows the memory."""
        there, fixed = self.platform.memory_bytes, self.memory_bytes(gpus, 0)
        if there is None:
            return None
        each = self.memory_bytes(gpus, 1) - fixed
        return max(0, int((there - fixed) // each)) if each > 0 else None

    def with_batch(self, batch_per_gpu: int) -> "PlatformScenario":
        workload = self.workload.model_copy(update={"batch_per_gpu": batch_per_gpu})
        return replace(self, workload=workload)

    def with_precision(self, precision: Precision) -> "PlatformScenario":
        """On the same GPUs, which must be described."""
        if self.gpu is None:
            raise ValueError("nobody knows what this hardware does in another precision")
        workload = at_precision(self.workload, self.profile, precision)
        line = line_of(workload, self.profile, self.gpu, self.calibration)
        return replace(self, workload=workload, line=line)

    def with_strategy(self, name: str) -> "PlatformScenario":
        """By another strategy, with what it does by default."""
        return replace(self, strategy=STRATEGIES[name], exchange=DEFAULT_EXCHANGE)

    def exchanging(self, **changes: object) -> "PlatformScenario":
        """With something else chosen about the exchange."""
        return replace(self, exchange=self.exchange.model_copy(update=changes))

    def on(self, cluster: Cluster) -> "PlatformScenario":
        """On another cluster of the same GPUs."""
        same_links = self.cluster is not None and machine_of(cluster) == machine_of(self.cluster)
        graph = self.graph if same_links else None
        own = _platform(cluster, self.calibration, graph, same_links=same_links)
        platform = shared(own, cluster, self.platform.other_jobs, graph)
        return replace(self, cluster=cluster, platform=platform, graph=graph)


def scenario_of(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    *,
    strategy: str = DEFAULT_STRATEGY,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    other_jobs: int = 0,
    calibration: Calibration | None = None,
    graph: MachineGraph | None = None,
) -> PlatformScenario:
    """A workload on a described cluster, with as many equal jobs beside it on its machines."""
    gpu, _ = machine_of(cluster)
    platform = _platform(cluster, calibration, graph)
    return PlatformScenario(
        workload=workload,
        profile=profile,
        platform=shared(platform, cluster, other_jobs, graph),
        line=line_of(workload, profile, gpu, calibration),
        strategy=STRATEGIES[strategy],
        exchange=exchange,
        cluster=cluster,
        calibration=calibration,
        graph=graph,
    )


def line_of(
    workload: Workload, profile: ModelProfile, gpu: Gpu, calibration: Calibration | None
) -> ComputeLine:
    """What a GPU takes alone, as well as it is known."""
    if calibration is None:
        return compute_line(workload, profile, gpu)
    return calibrated_line(workload, profile, gpu, calibration)


def _platform(
    cluster: Cluster,
    calibration: Calibration | None,
    graph: MachineGraph | None,
    *,
    same_links: bool = True,
) -> Platform:
    if calibration is None:
        return platform_of(cluster, graph)
    return calibrated_platform(cluster, calibration, same_links=same_links, graph=graph)
