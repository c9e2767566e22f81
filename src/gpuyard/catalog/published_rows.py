"""What a row of a published table says, and the figure that it may be predicted from."""

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
"""`ddp-after-backward`: an all-reduce that starts when backward has ended; `ddp-synthetic`, `ddp-cpu`: our
lab's, where compute was slept or done by cores; `distributed-replicated`: a parameter server whose
workers are machines, not GPUs; `none`: the processes exchange nothing, each trains for itself."""


# of one GPU's speed, what each of several may have: beyond it the one waited for input or is another machine's
MOST_SUPERLINEAR = 1.05


@dataclass(frozen=True)
class PublishedSource:
    """Where a table is from, what was added to it, and what is not known about it."""

    table: str
    title: str
    source: str
    date: datetime.date
    added: str
    unknown: str


@dataclass(frozen=True)
class Machines:
    """The machines of one row."""

    gpu: str
    topology: Topology
    peer_to_peer: bool  # False: NCCL was told to go through host memory, or the machine has to
    network: Network | None


@dataclass(frozen=True)
class Anchor:
    """The figure that a row may be predicted from."""

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
    """One published throughput of several GPUs. Its *source* is one publisher's machines under one software
    stack: what a prediction for somebody else's has to be judged by."""

    table: str
    source: str
    series: str
    model: str
    machines: Machines
    nodes: int
    gpus: int
    batch_per_gpu: float
    precision: Precision
    gradient_bits: int
    strategy: PublishedStrategy
    samples_per_second: float
    anchor: Anchor
    framework: str = ""  # what exchanged the gradients, as far as it is known
    accumulate: int = 1  # passes for one exchange; the batch is that of one pass
    input_workers: int | None = (
        None  # processes that prepared samples, for each GPU, where the table says it
    )


@dataclass(frozen=True)
class SingleGpuRow:
    """One published throughput of one GPU."""

    table: str
    series: str
    model: str
    gpu: str
    batch_per_gpu: float
    precision: Precision
    samples_per_second: float


@dataclass(frozen=True)
class AllReduceRow:
    """One timed all-reduce."""

    series: str
    gpu: str | None  # None: CPU ranks
    nodes: int
    gpus: int
    size_bytes: float
    seconds: float


@dataclass(frozen=True)
class PublishedTable:
    """The rows that can be predicted, and how many can't for which reason."""

    source: PublishedSource
    rows: tuple[PublishedRow, ...]
    anchors: int
    skipped: tuple[tuple[str, int], ...]


class PublishedFigure(Fact):
    """One row of a published table as it stands there; `lambda-17` is the 17th of Lambda's."""

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
    """Why `gpuyard validate` can't predict it, where it can't."""

    @property
    def per_gpu(self) -> float | None:
        return self.samples_per_second / self.gpus if self.gpus else None
