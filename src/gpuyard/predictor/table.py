"""The step model, vectorized: a table with one row per configuration, and the parts of each step.

Backward emits gradients layer by layer, and buckets are exchanged while the rest of backward runs. The part that does
not hide is exposed. Input runs in parallel. The slowest of k noisy workers determines the step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gpuyard.predictor.placement import Placement

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
# rows processed at once: a few dozen arrays of this length stay in a core's cache
CHUNK_ROWS = 8192
_TABULATED_WORKERS = 8192
# NCCL's trees are those of Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
# scan" (2009); NCCL calculates with 0.92 of the ring's rate for their all-reduce (NVIDIA/nccl src/graph/tuning.cc)
TREE_SHARE = 0.92
# Each of two trees has its root in one of two machines, so a machine sends every byte once instead of twice.
TREE_GAIN = 2 * TREE_SHARE
_INSTANT = 1e-12  # seconds


def _one() -> Floats:
    return np.ones(())


def _unlimited() -> Floats:
    return np.full((), np.inf)


@dataclass(frozen=True)
class Configurations:
    """The configurations to predict, one entry per row."""

    nodes: Floats
    gpus_per_node: Floats  # the mean: the last machine may be used in part
    batch_per_gpu: Floats
    max_gpus_per_node: Integers | None = None  # in the fullest machine, for rows of a platform
    fleet_index: Integers | None = None  # entry of the fleet, for rows of a fleet

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[Placement, int]]) -> "Configurations":
        """Create one row per placement and batch."""
        placements = [placement for placement, _ in pairs]
        return cls(
            nodes=np.array([p.nodes for p in placements], dtype=float),
            gpus_per_node=np.array([p.gpus / p.nodes for p in placements]),
            batch_per_gpu=np.array([batch for _, batch in pairs], dtype=float),
            max_gpus_per_node=np.array([p.gpus_per_node for p in placements], dtype=np.int64),
        )


def chunks(rows: int, size: int = CHUNK_ROWS) -> Iterator[slice]:
    """Yield consecutive slices of a long table."""
    for start in range(0, rows, size):
        yield slice(start, start + size)


@dataclass(frozen=True)
class HardwareRates:
    """Rates, latencies, and cores of the hardware, one entry per row or per entry of a fleet."""

    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite for a single machine
    between_latency_seconds: Floats
    host_to_gpu_bytes_per_second: Floats = field(default_factory=_unlimited)
    storage_bytes_per_second: Floats = field(default_factory=_unlimited)
    input_workers: Floats = field(default_factory=_unlimited)  # CPU cores per GPU
    gpu_memory_bytes_per_second: Floats | None = None  # None: unknown
    switch_gain: Floats | None = None
    trees: Booleans | None = None
    inside_low_share: Floats | None = None
    inside_high_share: Floats | None = None

    def select(self, index: Integers) -> "HardwareRates":
        """Select entries; scalars apply to all entries."""
        columns = {name: column for name, column in vars(self).items() if column is not None}
        return HardwareRates(
            **{n: column[index] if column.ndim else column for n, column in columns.items()}
        )


@dataclass(frozen=True)
class Paths:
    """The links that an exchange crosses, one entry per configuration."""

    nodes: Floats
    gpus_per_node: Floats
    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite for a single machine
    between_latency_seconds: Floats
    # the all-reduce inside a machine relative to its rings, if switches add up numbers; None: 1
    switch_gain: Floats | None = field(default=None, kw_only=True)
    # whether two machines exchange gradients by trees; None: no
    trees: Booleans | None = field(default=None, kw_only=True)
    # both ends of the 90% interval of the inside rate relative to it, beyond that of usual links; None: 1
    inside_low_share: Floats | None = field(default=None, kw_only=True)
    inside_high_share: Floats | None = field(default=None, kw_only=True)

    @property
    def gpus(self) -> Floats:
        return self.nodes * self.gpus_per_node

    @property
    def inside_seconds_per_byte(self) -> Floats:
        """The cost of a byte inside a machine.

        Switches that add up numbers (NVLS) serve one machine, or two connected by trees; NCCL uses rings over more.
        """
        cost = 1 / self.inside_bytes_per_second
        if self.switch_gain is None:
            return cost
        return np.where(self.nodes > 2, self.switch_gain, 1.0) * cost

    @property
    def between_seconds_per_byte(self) -> Floats:
        """The cost of a byte between machines, over a ring or over the trees of two machines."""
        cost = 1 / self.between_bytes_per_second
        if self.trees is None:
            return cost
        return np.where(self.trees & (self.nodes == 2), 1 / TREE_GAIN, 1.0) * cost

    @property
    def hop_seconds(self) -> Floats:
        """The hop latency of the longest path."""
        several = self.nodes > 1
        return np.where(several, self.between_latency_seconds, self.inside_latency_seconds)


@dataclass(frozen=True)
class Buckets:
    """Buckets in the order of the exchange: sizes, and the share of backward done when each is full."""

    size_bytes: Floats
    ready_share: Floats

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())


class ExchangeModel(Protocol):
    """The parts of a strategy that turn a step table into seconds and a timeline."""

    @property
    def calibrated(self) -> bool: ...
    @property
    def no_overlap_reason(self) -> str: ...
    @property
    def timeline_note(self) -> str: ...
    def bucket_name(self, number: int) -> str: ...
    def bucket_seconds(self, table: "StepTable") -> Callable[[Floats], Floats]: ...
    def exchange_seconds(
        self, table: "StepTable", compute_seconds: Floats
    ) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class Traffic:
    """The values common to all rows.

    They describe what the workload moves and how, the share of the exchange that hides, and how much slower a worker
    is among others than alone.
    """

    strategy: ExchangeModel
    buckets: Buckets
    input_bytes_per_sample: float
    storage_bytes_per_sample: float
    overlap: float
    overlap_between: float
    backward_share: float
    variation: float
    slowdown: float
    slowdown_between: float  # additional slowdown on several machines
    launch_seconds: float
    preprocess_seconds: float = 0.0  # per sample on one core
    hierarchical: bool = False  # if faster than a flat ring or tree


@dataclass(frozen=True)
class StepTable(Paths):
    """Configurations of one workload and strategy."""

    traffic: Traffic
    batch_per_gpu: Floats
    fixed_seconds: Floats
    seconds_per_sample: Floats
    host_overhead_seconds: Floats
    host_to_gpu_bytes_per_second: Floats = field(default_factory=_unlimited)
    storage_bytes_per_second: Floats = field(default_factory=_unlimited)
    input_workers: Floats = field(default_factory=_unlimited)  # CPU cores per GPU
    gpu_memory_bytes_per_second: Floats | None = None
    accumulate: Floats = field(default_factory=_one)  # passes per exchange
    local_sgd: Floats = field(default_factory=_one)  # updates per averaging
    sent_share: Floats = field(default_factory=_one)  # share of the buckets' bytes that is sent

    def double_speed(self, part: str) -> "StepTable":
        """Return the table with one part twice as fast."""
        match part:
            case "gpu":
                return replace(
                    self,
                    fixed_seconds=self.fixed_seconds / 2,
                    seconds_per_sample=self.seconds_per_sample / 2,
                )
            case "network":
                return replace(
                    self,
                    between_bytes_per_second=self.between_bytes_per_second * 2,
                    between_latency_seconds=self.between_latency_seconds / 2,
                )
            case "pcie":
                return replace(
                    self,
                    inside_bytes_per_second=self.inside_bytes_per_second * 2,
                    inside_latency_seconds=self.inside_latency_seconds / 2,
                    host_to_gpu_bytes_per_second=self.host_to_gpu_bytes_per_second * 2,
                )
            case "storage":
                return replace(self, storage_bytes_per_second=self.storage_bytes_per_second * 2)
            case "host":
                return replace(
                    self,
                    host_overhead_seconds=self.host_overhead_seconds / 2,
                    input_workers=self.input_workers * 2,
                )
            case _:
                raise ValueError(part)


@dataclass(frozen=True)
class Step:
    """Seconds of one step by part."""

    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    straggler_seconds: float

    def stretch_to(self, seconds: float) -> "Step":
        """Return the step with another length: waiting absorbs the difference first, then compute."""
        difference = seconds - self.seconds
        waiting = self.exposed_communication_seconds + self.straggler_seconds
        new_waiting = max(0.0, waiting + difference)
        if self.exposed_communication_seconds > 0:
            share = self.exposed_communication_seconds / waiting
        else:
            share = 0.0
        compute = self.compute_seconds + min(0.0, waiting + difference)
        return Step(compute, share * new_waiting, self.input_seconds, (1 - share) * new_waiting)

    @property
    def seconds(self) -> float:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step by part."""

    compute_seconds: Floats
    exposed_communication_seconds: Floats
    input_seconds: Floats
    straggler_seconds: Floats
    communication_seconds: Floats  # one whole exchange, hidden or not

    @property
    def step_seconds(self) -> Floats:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )

    def get_step(self, row: int) -> Step:
        return Step(
            float(self.compute_seconds[row]),
            float(self.exposed_communication_seconds[row]),
            float(self.input_seconds[row]),
            float(self.straggler_seconds[row]),
        )


def compute_step_parts(table: StepTable) -> StepParts:
    """Compute the parts of every step; docs/model.md describes the model."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    total, ideal = traffic.strategy.exchange_seconds(table, compute)
    overlap = resolve_overlap(table, total)
    passes = table.accumulate * table.local_sgd
    exposed = (total - overlap * (total - ideal)) / passes + table.host_overhead_seconds
    slowdown = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        table.nodes > 1, traffic.slowdown_between, 0.0
    )
    straggling = compute * (slowdown + traffic.variation * expected_maximum(table.gpus))
    busy = compute + exposed + straggling
    input_exposed = np.maximum(0.0, input_seconds(table) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def resolve_overlap(table: StepTable, exchange_seconds: Floats) -> Floats:
    """Return the share of a hidden exchange that costs no compute.

    Several machines expose at least as much of it as the links inside one machine would alone, so leaving the machine
    never makes an exchange cheaper. Local SGD averages parameters after an update, when there is no compute to hide
    behind.
    """
    traffic = table.traffic
    ring_share = 2 * (1 - 1 / table.gpus)
    sent_bytes = float(np.sum(traffic.buckets.size_bytes)) * table.sent_share
    hops = 2 * (table.gpus_per_node - 1)
    starts = traffic.launch_seconds + hops * table.inside_latency_seconds
    inside_seconds = (
        ring_share * sent_bytes * table.inside_seconds_per_byte
        + len(traffic.buckets.size_bytes) * starts
    )
    inside = np.minimum(1.0, inside_seconds / np.maximum(exchange_seconds, _INSTANT))
    several = np.minimum(traffic.overlap_between, 1 - inside * (1 - traffic.overlap))
    overlap = np.where(table.nodes > 1, several, traffic.overlap)
    return np.where(table.local_sgd > 1, 0.0, overlap)


def samples_per_second(table: StepTable) -> Floats:
    """Return the throughput of every row."""
    return table.gpus * table.batch_per_gpu / compute_step_parts(table).step_seconds


def input_seconds(table: StepTable) -> Floats:
    """Return the input time: the slowest of shared storage, preprocessing, and the copy to each GPU."""
    traffic = table.traffic
    from_storage = (
        table.gpus
        * table.batch_per_gpu
        * traffic.storage_bytes_per_sample
        / table.storage_bytes_per_second
    )
    to_gpu = (
        table.batch_per_gpu * traffic.input_bytes_per_sample / table.host_to_gpu_bytes_per_second
    )
    preprocessing = table.batch_per_gpu * traffic.preprocess_seconds / table.input_workers
    return np.maximum(np.maximum(from_storage, preprocessing), to_gpu)


@lru_cache(maxsize=1)
def _tabulate_expected_maxima() -> Floats:
    normal = NormalDist()
    maxima = [normal.inv_cdf((k - 0.375) / (k + 0.25)) for k in range(2, _TABULATED_WORKERS + 1)]
    return np.array([0.0, 0.0, *maxima])


def expected_maximum(workers: Floats) -> Floats:
    """Return how many σ the slowest of k normal workers is above the mean (Blom's approximation, 1958)."""
    counts = np.rint(workers).astype(np.int64)
    if counts.size and counts.max() > _TABULATED_WORKERS:
        normal = NormalDist()
        return np.array(
            [normal.inv_cdf((k - 0.375) / (k + 0.25)) if k > 1 else 0.0 for k in counts]
        )
    return _tabulate_expected_maxima()[counts]
