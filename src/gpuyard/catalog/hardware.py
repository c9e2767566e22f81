"""Catalog tables of hardware: GPUs, links, machines, CPUs, and the end of software support for older GPUs."""

import functools
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.specs import Topology

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")

_REST_OF_SERVER = 0.6  # power of CPUs, fans, and so on per watt of GPU power


class Gpu(Fact):
    """A GPU as software sees it: a K80 board has two, and an MI250X package is one.

    The table also has the accelerators of Google, AWS, and Intel. Peaks are dense (no 2:4 sparsity) with fp32 accumulation:
    the rate of the tensor or matrix cores if there are any, otherwise the vector rate. A precision that the hardware lacks,
    or runs only at a token rate, is left out.
    """

    name: str
    vendor: Literal["NVIDIA", "AMD", "Intel", "Google", "AWS"]
    architecture: str
    form_factor: str
    released: int = Field(ge=2010, le=2030)
    memory_gb: float = Field(gt=0)
    memory_bandwidth_gb_per_second: float = Field(gt=0)
    fp32_tflops: float | None = Field(default=None, gt=0)
    tf32_tflops: float | None = Field(default=None, gt=0)
    fp16_tflops: float | None = Field(default=None, gt=0)
    bf16_tflops: float | None = Field(default=None, gt=0)
    fp8_tflops: float | None = Field(default=None, gt=0)
    fp4_tflops: float | None = Field(default=None, gt=0)
    board_watts: float = Field(gt=0)
    watts_basis: Literal["listed", "estimate"] = "listed"
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: Literal[4, 8, 16]
    nvlink_generation: int | None = Field(default=None, ge=1, le=6)
    nvlink_links: int | None = Field(default=None, ge=1)
    nvlink_link: str | None = None
    """The row of the links table; by default, the usual one of the generation."""
    nvlink_bridge: bool = False
    """True if NVLink connects only the cards of one bridge, never a switch."""
    nvswitch_gpus: int | None = Field(default=None, ge=2)
    """The largest number of GPUs that NVSwitches connect in an existing machine or rack, if any."""
    mesh_gpus: int | None = Field(default=None, ge=3)
    """The largest number of GPUs that boards or bridges connect in a full NVLink mesh, if any."""
    fabric_link: str | None = None
    """The row of the links table for direct links of a vendor other than NVIDIA."""
    fabric_links: int | None = Field(default=None, ge=1)
    fabric_topology: Literal["full-mesh", "torus"] | None = None
    """The topology of that vendor's direct links."""
    pcie_peer_to_peer: bool
    """True if the vendor's driver lets one GPU read another's memory over PCIe."""
    streaming_multiprocessors: int | None = Field(default=None, gt=0)
    """NVIDIA's streaming multiprocessors or AMD's compute units."""
    note: str = ""

    @property
    def memory_bytes(self) -> int:
        """The memory in bytes; a "16 GB" GPU has 16 GiB, and nvidia-smi shows 16384 MiB."""
        return round(self.memory_gb * 2**30)

    @property
    def memory_bytes_per_second(self) -> float:
        return self.memory_bandwidth_gb_per_second * 1e9

    @property
    def nvlink_id(self) -> str | None:
        """The row of the links table for one of this GPU's NVLinks."""
        if self.nvlink_generation is None:
            return None
        return self.nvlink_link or f"nvlink-{self.nvlink_generation}"

    @property
    def needs_vendor_software(self) -> bool:
        """True if a model must be ported to the vendor's software, because it has neither CUDA nor ROCm."""
        return self.vendor not in ("NVIDIA", "AMD")

    @property
    def peer_link(self) -> str | None:
        """The row of the links table for a direct link to another GPU, or None if there is only PCIe."""
        return self.nvlink_id or self.fabric_link

    @property
    def peer_links(self) -> int:
        """The number of direct links to other GPUs, NVLink or another vendor's."""
        return self.nvlink_links or self.fabric_links or 0

    @property
    def links_description(self) -> str:
        """A description like "4 × NVLink 3 over a bridge to one other card"."""
        if self.peer_link is None:
            return f"PCIe {self.pcie_generation}.0 x{self.pcie_lanes} and no links to other GPUs"
        others = {4: "up to three other cards"}.get(self.mesh_gpus or 2, "one other card")
        bridge = f" over a bridge to {others}" if self.nvlink_bridge else ""
        return f"{self.peer_links} × {links().get(self.peer_link).name}{bridge}"

    def document(self) -> dict[str, Any]:
        end = find_end_of_life(self)
        return super().document() | {
            "links_to_others": self.links_description,
            "end_of_life": end.sentence if end else None,
        }

    def server_watts(self, gpus: int) -> float:
        """Return the power of a server with these GPUs under load, if its own is unknown."""
        return gpus * self.board_watts * (1 + _REST_OF_SERVER)

    def peak_flops(self, precision: str) -> float | None:
        """Return the peak in FLOP/s, or None if the GPU does not offer the precision.

        A missing precision has no substitute: fp16 on a GTX 1080 Ti is None, not its fp32 rate, because the caller decides
        whether a framework would compute in fp32 instead.
        """
        if precision not in PRECISIONS:
            raise UnknownName("precision", precision, PRECISIONS)
        tflops: float | None = getattr(self, f"{precision}_tflops")
        return None if tflops is None else tflops * 1e12


@functools.cache
def gpus() -> FactTable[Gpu]:
    """Return the GPUs, with peaks, memory, links, and power."""
    return read_toml("GPU", Gpu, "gpus.toml")


LinkKind = Literal["pcie", "nvlink", "fabric", "socket", "ethernet", "infiniband", "memory"]
LinkProtocol = Literal["tcp", "rdma", "peer"]
LinkBasis = Literal["measured", "planning", "derived", "assumed"]


class Link(Fact):
    """A link in one direction.

    The basis of the effective rate is a measurement, NCCL's planning constant, the frame format, or an assumption.
    """

    name: str
    kind: LinkKind
    raw_gb_per_second: float = Field(gt=0)
    effective_gb_per_second: float = Field(gt=0)
    latency_us: float = Field(gt=0)
    """The latency of one hop of a small message in a collective."""
    protocol: LinkProtocol
    basis: LinkBasis
    note: str = ""
    nvls_gb_per_second: float | None = Field(default=None, gt=0)
    """The rate per link at which a GPU feeds an all-reduce that NVSwitches sum up (NVLS)."""
    nvls_min_gpus: int | None = Field(default=None, gt=1)
    """The smallest number of GPUs for which NCCL chooses NVLS."""

    @property
    def raw_bytes_per_second(self) -> float:
        return self.raw_gb_per_second * 1e9

    @property
    def effective_bytes_per_second(self) -> float:
        return self.effective_gb_per_second * 1e9

    @property
    def latency_seconds(self) -> float:
        return self.latency_us * 1e-6


@functools.cache
def links() -> FactTable[Link]:
    """Return the links, with rates and latencies."""
    return read_toml("link", Link, "links.toml")


class Machine(Fact):
    """A product, a cloud instance, or a common build.

    `gpu` is a row of the GPU table, and `nic_link` a row of the links table: it has `nics` such links for training traffic.
    A barebone names the GPU that it is usually sold with.
    """

    name: str
    gpu: str
    gpus: int = Field(gt=0)
    topology: Topology
    nic_link: str | None = None
    nics: int = Field(default=0, ge=0)
    sockets: int = Field(gt=0)
    socket_link: str | None = None
    """The row of the links table between sockets; by default, the usual one when the GPU was released."""
    max_watts: float | None = Field(default=None, gt=0)
    rack_units: int | None = Field(default=None, gt=0)
    price_usd: float | None = Field(default=None, gt=0)
    note: str = ""


@functools.cache
def machines() -> FactTable[Machine]:
    """Return the machines, with their GPUs, topologies, and networks."""
    return read_toml("machine", Machine, "machines.toml")


class StagedCopy(Fact):
    """The median of CUDA's p2pBandwidthLatencyTest without peer access over a machine's pairs of GPUs."""

    gpu: str
    gpus: int = Field(gt=1)
    link: str
    """The slower slot of a pair, a row of the links table."""
    slot_known_by: Literal["source", "rate"]
    """`rate`: no slower slot could carry the measured rate."""
    one_way_gb_per_second: float = Field(gt=0)
    both_ways_gb_per_second: float | None = Field(None, gt=0)
    """The sum of both directions at the same time."""
    peer_gb_per_second: float | None = Field(None, gt=0)
    """The one-way rate over the same slots with peer access."""
    note: str = ""

    @property
    def one_way_share(self) -> float:
        """The one-way rate as a share of the slot's effective rate."""
        return self.one_way_gb_per_second / links().get(self.link).effective_gb_per_second

    @property
    def both_ways_share(self) -> float | None:
        """The rate in each direction as a share of the slot's effective rate."""
        if self.both_ways_gb_per_second is None:
            return None
        return self.both_ways_gb_per_second / 2 / links().get(self.link).effective_gb_per_second


@functools.cache
def staged_copies() -> FactTable[StagedCopy]:
    return read_csv("staged copy", StagedCopy, "staged_copies.csv")


class EndOfLife(Fact):
    """An architecture (its id) that current CUDA no longer supports."""

    cuda_last: str
    cuda_dropped: str
    cuda_dropped_in: str
    pytorch: str
    """The remaining PyTorch support, as a clause."""

    @property
    def cuda_range(self) -> str:
        """The supported CUDA versions for a table cell: "up to 12.9"."""
        return f"up to {self.cuda_last}"

    @property
    def sentence(self) -> str:
        """A warning for people who consider such a GPU."""
        return (
            f"{self.id} GPUs are at the end of their software support: CUDA {self.cuda_dropped} "
            f"({self.cuda_dropped_in}) dropped them, {self.cuda_last} is the last; {self.pytorch}."
        )


@functools.cache
def ends_of_life() -> FactTable[EndOfLife]:
    return read_toml("unsupported architecture", EndOfLife, "software.toml")


def find_end_of_life(gpu: Gpu) -> EndOfLife | None:
    """Return the end of support of the GPU's architecture, or None if current software supports it."""
    unsupported = gpu.vendor == "NVIDIA" and gpu.architecture in ends_of_life()
    return ends_of_life().get(gpu.architecture) if unsupported else None


def find_ends_of_life(gpus: Iterable[Gpu]) -> list[EndOfLife]:
    """Return the unsupported architectures of these GPUs, each once, the oldest first."""
    architectures = {end.id for gpu in gpus if (end := find_end_of_life(gpu))}
    return [end for end in ends_of_life() if end.id in architectures]


class Cpu(Fact):
    """A CPU with the PCIe lanes that reach slots, without those of the chipset."""

    name: str
    vendor: Literal["Intel", "AMD"]
    family: str
    cores: int = Field(gt=0)
    max_sockets: int = Field(gt=0)
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: int = Field(gt=0)
    dual_socket_lanes: int | None = Field(default=None, gt=0)
    """The lanes of two sockets together, because AMD's use some lanes to connect to each other."""
    note: str = ""

    def lanes(self, sockets: int) -> int:
        """Return the lanes of all sockets of a machine."""
        if sockets > self.max_sockets:
            raise UserMistake(
                f"{self.id} supports machines with up to {self.max_sockets} sockets, got {sockets}"
            )
        if sockets == 2 and self.dual_socket_lanes is not None:
            return self.dual_socket_lanes
        return sockets * self.pcie_lanes


@functools.cache
def cpus() -> FactTable[Cpu]:
    return read_toml("CPU", Cpu, "cpus.toml")
