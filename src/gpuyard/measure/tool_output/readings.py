"""The readings that tools print: collectives by size, rates of links, and the health of GPUs."""

from dataclasses import dataclass, field
from typing import Literal

from gpuyard.choices import Collective
from gpuyard.measure.links.records import Direction, GpuSlot, PlannedLinkKind


@dataclass(frozen=True)
class SizedRate:
    """The speed of a collective at one message size."""

    bytes: int
    bus_bytes_per_second: (
        float | None
    )  # None: the tool prints a time, and the number of ranks is unknown
    seconds: float
    wrong: int = 0  # elements with a wrong value


@dataclass(frozen=True)
class CollectiveReading:
    """One table of a collective: nccl-tests, rccl-tests, or OSU."""

    tool: str
    operation: Collective
    ranks: int | None
    nodes: int | None
    gpu_name: str | None
    rows: tuple[SizedRate, ...]
    separate_ranks: bool = False  # every process was rank 0, so each measured itself alone
    uses_mpi: bool = False  # for the collective itself, not NCCL or RCCL


@dataclass(frozen=True)
class LinkReading:
    """The rate of one link. GPUs are named as in a machine graph; host memory is `host`."""

    kind: PlannedLinkKind | Literal["network"]
    source: str
    target: str
    direction: Direction
    bytes_per_second: float
    peer: bool | None = None


@dataclass(frozen=True)
class LinkTable:
    """The links that one run of a tool measured."""

    tool: str
    title: str
    gpu_names: tuple[str, ...]
    links: tuple[LinkReading, ...]


@dataclass(frozen=True)
class DeviceHealth:
    """The slot of one GPU or network card, and the clocks and errors of a GPU."""

    name: str
    slot: GpuSlot
    is_network_card: bool = False
    is_idle: bool = False
    throttle_reasons: tuple[str, ...] = ()  # as nvidia-smi names them
    uncorrectable_errors: int = 0
    pending_repairs: bool = False  # memory rows or pages that the next reset would replace
    power_limit_watts: float | None = None
    default_power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None


@dataclass(frozen=True)
class ToolOutput:
    """All readings of a file."""

    source: str
    collectives: tuple[CollectiveReading, ...] = ()
    tables: tuple[LinkTable, ...] = ()
    devices: tuple[DeviceHealth, ...] = ()
    acs_bridges: tuple[str, ...] = field(default=())
