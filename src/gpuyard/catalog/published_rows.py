"""The rows of published tables, and the anchors that they are predicted from."""

import datetime
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact
from gpuyard.specs import Network, Precision, Topology

PublishedStrategy = Literal[
    "ddp",
    "ddp-after-backward",
    "ddp-synthetic",
    "ddp-cpu",
    "horovod",
    "parameter-server",
    "distributed-replicated",
    "none",
]
"""`ddp-after-backward`: an all-reduce that starts after backward; `ddp-synthetic`, `ddp-cpu`: gpuyard's lab, where compute
was slept or done by CPU cores; `distributed-replicated`: a parameter server whose workers are machines, not GPUs; `none`:
independent processes that exchange nothing."""


MAX_SUPERLINEAR = 1.05
"""Largest plausible speed per GPU relative to one GPU; beyond it, the one GPU waited for input or was different."""


@dataclass(frozen=True)
class PublishedSource:
    """The source of a table, the facts that were added to it, and the facts that are unknown."""

    table: str
    title: str
    source: str
    date: datetime.date
    added: str
    unknown: str


@dataclass(frozen=True)
class PublishedMachines:
    """The machines of a row."""

    gpu: str
    topology: Topology
    peer_to_peer: bool  # False: NCCL was configured or forced to use host memory
    network: Network | None


@dataclass(frozen=True)
class Anchor:
    """The smaller measurement that a row is predicted from."""

    nodes: int
    gpus: int
    batch_per_gpu: float
    samples_per_second: float
    accumulate: int = 1

    @property
    def step_seconds(self) -> float:
        return self.gpus * self.batch_per_gpu / self.samples_per_second


@dataclass(frozen=True)
class PublishedRow:
    """A published throughput of several GPUs.

    Its *source* is one publisher's machines with one software stack. Validation holds out whole sources.
    """

    table: str
    source: str
    series: str
    model: str
    machines: PublishedMachines
    nodes: int
    gpus: int
    batch_per_gpu: float
    precision: Precision
    gradient_bits: int
    strategy: PublishedStrategy
    samples_per_second: float
    anchor: Anchor
    framework: str = ""  # the library that exchanged gradients, if known
    accumulate: int = 1  # passes per exchange; the batch is that of one pass
    input_workers: int | None = None  # processes that prepared samples per GPU, if published


@dataclass(frozen=True)
class SingleGpuRow:
    """A published throughput of one GPU; validation of one GPU's speed holds out whole publishers."""

    publisher: str
    stack: str  # one publisher's software on one kind of machine
    table: str
    series: str
    model: str
    gpu: str
    batch_per_gpu: float
    precision: Precision
    samples_per_second: float
    channels_last: bool = False
    compiled: bool = False  # by XLA or the like


@dataclass(frozen=True)
class AllReduceRow:
    """A timed all-reduce."""

    series: str
    gpu: str | None  # None: CPU ranks
    nodes: int
    gpus: int
    size_bytes: float
    seconds: float


@dataclass(frozen=True)
class CollectiveRow:
    """A bus bandwidth that somebody published, mostly in an issue thread."""

    thread: str
    gpu: str
    topology: Topology
    machine_gpus: int
    peer_to_peer: bool
    nodes: int
    gpus: int
    network: Network | None
    op: Literal["all_reduce", "all_gather", "reduce_scatter"]
    nvls: bool  # False: switched off
    size_bytes: float
    bytes_per_second: float


@dataclass(frozen=True)
class PublishedTable:
    """The rows that can be predicted, and the number of other rows by reason."""

    source: PublishedSource
    rows: tuple[PublishedRow, ...]
    anchors: int
    skipped: tuple[tuple[str, int], ...]


class PublishedFigure(Fact):
    """A row of a published table; `lambda-17` is the 17th row of Lambda's table."""

    table: str
    series: str
    model: str
    gpu: str | None = None
    nodes: int = Field(ge=0)
    gpus: int = Field(ge=0)
    batch_per_gpu: float = Field(ge=0)
    precision: Precision
    samples_per_second: float = Field(gt=0)
    note: str = ""
    """The reason if `gpuyard validate` cannot predict the row."""

    @property
    def per_gpu(self) -> float | None:
        return self.samples_per_second / self.gpus if self.gpus else None
