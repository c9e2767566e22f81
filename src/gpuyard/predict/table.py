"""A step, of many configurations at once: the table that it is reckoned from (one array a column, one entry a
configuration), and what each of them waits for.

Backward emits gradients layer by layer; buckets are exchanged while the rest of backward runs; what
does not hide is exposed. Input runs beside it all. The slowest of k noisy workers sets the pace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.predict.strategies.base import Strategy


@dataclass(frozen=True)
class Placement:
    """So many GPUs on each of so many machines; the last machine may be used in part."""

    gpus: int
    nodes: int
    gpus_per_node: int


def place(
    gpus: int, nodes_available: int, gpus_in_machine: int, gpus_per_node: int | None = None
) -> Placement:
    """Fill machines one after the other, or take the same number from each where that is asked for."""
    per_node = gpus_in_machine if gpus_per_node is None else gpus_per_node
    if per_node > gpus_in_machine:
        raise UserMistake(f"{per_node} GPUs per node: each machine has {gpus_in_machine}")
    if gpus_per_node is not None and gpus % per_node:
        raise UserMistake(f"{gpus} GPUs can't be spread as {per_node} per node")
    nodes = -(-gpus // per_node)
    if nodes > nodes_available:
        has = f"{nodes_available} × {gpus_in_machine} GPUs"
        raise UserMistake(
            f"{gpus} GPUs at {per_node} per node need {nodes} nodes; the cluster has {has}"
        )
    return Placement(gpus, nodes, min(gpus, per_node))


@dataclass(frozen=True)
class Move:
    """Bytes that cross a GPU's link in one step, and why."""

    what: str
    size_bytes: float


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
# rows that are worked on at once: some dozens of arrays of them stay in a core's cache
CHUNK_ROWS = 8192
_TABULATED_WORKERS = 8192


def _one() -> Floats:
    return np.ones(())


def _endless() -> Floats:
    return np.full((), np.inf)


@dataclass(frozen=True)
class Configurations:
    """Which configurations are asked about."""

    nodes: Floats
    gpus_per_node: Floats  # the mean: the last machine may be used in part
    batch_per_gpu: Floats
    fullest: Integers | None = None  # GPUs used in a machine that has most of them; of a platform
    spot: Integers | None = None  # of a fleet

    @classmethod
    def of(cls, spots: Sequence[tuple[Placement, int]]) -> "Configurations":
        """One row a placement and batch."""
        return cls(
            nodes=np.array([place.nodes for place, _ in spots], dtype=float),
            gpus_per_node=np.array([place.gpus / place.nodes for place, _ in spots]),
            batch_per_gpu=np.array([batch for _, batch in spots], dtype=float),
            fullest=np.array([place.gpus_per_node for place, _ in spots], dtype=np.int64),
        )


def chunks(rows: int, each: int = CHUNK_ROWS) -> Iterator[slice]:
    """Parts of a long table, after each other."""
    for start in range(0, rows, each):
        yield slice(start, start + each)


@dataclass(frozen=True)
class HardwareRates:
    """What hardware gives: rates, latencies and cores, one entry a row or, of a fleet, a spot."""

    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite where there is only one machine
    between_latency_seconds: Floats
    host_to_gpu_bytes_per_second: Floats = field(default_factory=_endless)
    storage_bytes_per_second: Floats = field(default_factory=_endless)
    input_workers: Floats = field(default_factory=_endless)  # CPU cores for each GPU
    gpu_memory_bytes_per_second: Floats | None = None  # None: not known

    def take(self, spot: Integers) -> "HardwareRates":
        """Those of some spots; what has one entry is the same for all."""
        columns = {name: column for name, column in vars(self).items() if column is not None}
        return HardwareRates(
            **{n: column[spot] if column.ndim else column for n, column in columns.items()}
        )


@dataclass(frozen=True)
class Paths:
    """What the bytes of an exchange cross, one entry a configuration."""

    nodes: Floats
    gpus_per_node: Floats
    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite where there is only one machine
    between_latency_seconds: Floats

    @property
    def gpus(self) -> Floats:
        return self.nodes * self.gpus_per_node

    @property
    def hop_seconds(self) -> Floats:
        """Of the longest way there is."""
        several = self.nodes > 1
        return np.where(several, self.between_latency_seconds, self.inside_latency_seconds)


@dataclass(frozen=True)
class Buckets:
    """In the order of the exchange: sizes, and the share of backward done when each is full."""

    size_bytes: Floats
    ready_share: Floats

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())


@dataclass(frozen=True)
class Traffic:
    """What is the same in all rows: what the workload moves and how, how much of the exchange hides,
    inside a machine and between machines, and by how much a worker among others is slower than alone."""

    strategy: "Strategy"
    buckets: Buckets
    input_bytes_per_sample: float
    storage_bytes_per_sample: float
    overlap: float
    overlap_between: float
    backward_share: float
    variation: float
    slowdown: float
    slowdown_between: float  # where they are on several machines, besides
    launch_seconds: float
    preprocess_seconds: float = 0.0  # of one core, a sample
    hierarchical: bool = False  # where it is faster than a flat ring or tree


@dataclass(frozen=True)
class StepTable(Paths):
    """Configurations of one workload and strategy."""

    traffic: Traffic
    batch_per_gpu: Floats
    fixed_seconds: Floats
    seconds_per_sample: Floats
    host_overhead_seconds: Floats
    host_to_gpu_bytes_per_second: Floats = field(default_factory=_endless)
    storage_bytes_per_second: Floats = field(default_factory=_endless)
    input_workers: Floats = field(default_factory=_endless)  # cores for each GPU
    gpu_memory_bytes_per_second: Floats | None = None
    accumulate: Floats = field(default_factory=_one)  # passes for one exchange
    local_sgd: Floats = field(default_factory=_one)  # updates for one averaging
    sent_share: Floats = field(default_factory=_one)  # of the buckets' bytes

    def doubled(self, part: str) -> "StepTable":
        """The same with one part twice as fast."""
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
    """Seconds of one step, by what is waited for."""

    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    straggler_seconds: float

    def lasting(self, seconds: float) -> "Step":
        """The same with another length: what is waited for takes the difference, and then compute."""
        more = seconds - self.seconds
        waited = self.exposed_communication_seconds + self.straggler_seconds
        kept = max(0.0, waited + more)
        if self.exposed_communication_seconds > 0:
            share = self.exposed_communication_seconds / waited
        else:
            share = 0.0
        compute = self.compute_seconds + min(0.0, waited + more)
        return Step(compute, share * kept, self.input_seconds, (1 - share) * kept)

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
    """Seconds of one step, by what is waited for."""

    compute_seconds: Floats
    exposed_communication_seconds: Floats
    input_seconds: Floats
    straggler_seconds: Floats
    communication_seconds: Floats  # of one exchange, with what is hidden

    @property
    def step_seconds(self) -> Floats:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )

    def at(self, row: int) -> Step:
        return Step(
            float(self.compute_seconds[row]),
            float(self.exposed_communication_seconds[row]),
            float(self.input_seconds[row]),
            float(self.straggler_seconds[row]),
        )


def step_parts(table: StepTable) -> StepParts:
    """The model of DESIGN's "A step", vectorised over the table."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    total, ideal = traffic.strategy.exchange_seconds(table, compute)
    overlap = np.where(table.nodes > 1, traffic.overlap_between, traffic.overlap)
    # parameters are averaged after an update, when there is nothing left to hide behind
    overlap = np.where(table.local_sgd > 1, 0.0, overlap)
    passes = table.accumulate * table.local_sgd
    exposed = (total - overlap * (total - ideal)) / passes + table.host_overhead_seconds
    disturbed = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        table.nodes > 1, traffic.slowdown_between, 0.0
    )
    straggling = compute * (disturbed + traffic.variation * expected_maximum(table.gpus))
    busy = compute + exposed + straggling
    input_exposed = np.maximum(0.0, input_seconds(table) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def samples_per_second(table: StepTable) -> Floats:
    """The throughput of every row."""
    return table.gpus * table.batch_per_gpu / step_parts(table).step_seconds


def input_seconds(table: StepTable) -> Floats:
    """Storage (shared by all), what CPUs do to samples and the copy to each GPU, beside each other;
    the slowest counts."""
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
    prepared = table.batch_per_gpu * traffic.preprocess_seconds / table.input_workers
    return np.maximum(np.maximum(from_storage, prepared), to_gpu)


@lru_cache(maxsize=1)
def _above() -> Floats:
    normal = NormalDist()
    found = [normal.inv_cdf((k - 0.375) / (k + 0.25)) for k in range(2, _TABULATED_WORKERS + 1)]
    return np.array([0.0, 0.0, *found])


def expected_maximum(workers: Floats) -> Floats:
    """How many σ the slowest of k normal workers lies above the mean (Blom's approximation, 1958)."""
    counts = np.rint(workers).astype(np.int64)
    if counts.size and counts.max() > _TABULATED_WORKERS:
        normal = NormalDist()
        return np.array(
            [normal.inv_cdf((k - 0.375) / (k + 0.25)) if k > 1 else 0.0 for k in counts]
        )
    return _above()[counts]
