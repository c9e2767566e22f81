"""The hardware: GPUs, the links that carry gradients, the machines that GPUs sit in and their CPUs; and which GPUs current
CUDA and PyTorch have left behind, since which version and day."""

import functools
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.specs import Topology

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")


class Gpu(Fact):
    """One GPU as software sees it: a K80 board is two of these, an MI250X package is one. What Google, AWS and
    Intel sell for the same work is here, too.

    Peaks are dense (no 2:4 sparsity) with fp32 accumulation: the tensor- or matrix-core rate where
    there are such cores, else the vector rate. A precision that the hardware lacks, or runs only at
    a token rate, is left out.
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
    board_watts: float = Field(gt=0)
    watts_basis: Literal["listed", "estimate"] = "listed"
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: Literal[4, 8, 16]
    nvlink_generation: int | None = Field(default=None, ge=1, le=6)
    nvlink_links: int | None = Field(default=None, ge=1)
    nvlink_link: str | None = None
    """The row of the links table, where it is not the usual one of the generation."""
    nvlink_bridge: bool = False
    """NVLink reaches only the cards on the other side of a bridge, never a switch."""
    nvswitch_gpus: int | None = Field(default=None, ge=2)
    """The most that NVSwitches join in one machine or rack that was built; None: they join none."""
    mesh_gpus: int | None = Field(default=None, ge=3)
    """The most that boards or bridges join each with every other by NVLink; None: none do."""
    fabric_link: str | None = None
    """Where a maker other than NVIDIA joins its GPUs directly: the row of the links table."""
    fabric_links: int | None = Field(default=None, ge=1)
    fabric_topology: Literal["full-mesh", "torus"] | None = None
    """How the maker wires them."""
    pcie_peer_to_peer: bool
    """The vendor's driver lets one GPU read another's memory over PCIe."""
    streaming_multiprocessors: int | None = Field(default=None, gt=0)
    """NVIDIA's SMs; on AMD the compute units."""
    note: str = ""

    @property
    def memory_bytes(self) -> int:
        """Memory is sold in GB and built in powers of two: nvidia-smi shows 16384 MiB for 16 GB."""
        return round(self.memory_gb * 2**30)

    @property
    def memory_bytes_per_second(self) -> float:
        return self.memory_bandwidth_gb_per_second * 1e9

    @property
    def nvlink_id(self) -> str | None:
        """The row of the links table that describes one of this GPU's NVLinks."""
        if self.nvlink_generation is None:
            return None
        return self.nvlink_link or f"nvlink-{self.nvlink_generation}"

    @property
    def own_software(self) -> bool:
        """Neither CUDA nor ROCm: a model has to be brought to its maker's software first."""
        return self.vendor not in ("NVIDIA", "AMD")

    @property
    def own_link(self) -> str | None:
        """The row of the links table of one link between GPUs of this kind; None: there is only PCIe."""
        return self.nvlink_id or self.fabric_link

    @property
    def own_links(self) -> int:
        """How many links to other GPUs it has, NVLink or another maker's."""
        return self.nvlink_links or self.fabric_links or 0

    @property
    def own_links_words(self) -> str:
        """ "4 × NVLink 3 over a bridge to one other card"."""
        if self.own_link is None:
            return f"PCIe {self.pcie_generation}.0 x{self.pcie_lanes} and no links to other GPUs"
        others = {4: "up to three other cards"}.get(self.mesh_gpus or 2, "one other card")
        bridge = f" over a bridge to {others}" if self.nvlink_bridge else ""
        return f"{self.own_links} × {links().get(self.own_link).name}{bridge}"

    def peak_flops(self, precision: str) -> float | None:
        """The peak in FLOP/s, or None where the GPU does not offer the precision.

        Nothing stands in for a missing precision: fp16 on a GTX 1080 Ti is None, not its fp32 rate,
        because whether a framework then computes in fp32 is for the caller to decide.
        """
        if precision not in PRECISIONS:
            raise UnknownName("precision", precision, PRECISIONS)
        tflops: float | None = getattr(self, f"{precision}_tflops")
        return None if tflops is None else tflops * 1e12


@functools.cache
def gpus() -> FactTable[Gpu]:
    return read_toml("GPU", Gpu, "gpus.toml")


LinkKind = Literal["pcie", "nvlink", "fabric", "socket", "ethernet", "infiniband", "memory"]
LinkProtocol = Literal["tcp", "rdma", "peer"]
LinkBasis = Literal["measured", "planning", "derived", "assumed"]


class Link(Fact):
    """One link, one direction. The basis says how far to trust the effective rate: somebody
    measured it, NCCL plans with it, it follows from the frame format, or it is a guess."""

    name: str
    kind: LinkKind
    raw_gb_per_second: float = Field(gt=0)
    effective_gb_per_second: float = Field(gt=0)
    latency_us: float = Field(gt=0)
    """One hop of a small message inside a collective."""
    protocol: LinkProtocol
    basis: LinkBasis
    note: str = ""

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
    return read_toml("link", Link, "links.toml")


class Machine(Fact):
    """A product, a cloud instance, or a common build.

    `gpu` is a row of the GPU table and `nic_link` one of the links table: the link that training
    traffic takes, `nics` of them. A barebone names the GPU that it is usually sold with.
    """

    name: str
    gpu: str
    gpus: int = Field(gt=0)
    topology: Topology
    nic_link: str | None = None
    nics: int = Field(default=0, ge=0)
    sockets: int = Field(gt=0)
    socket_link: str | None = None
    """The row of the links table that joins them, where it is not the usual one of the GPU's years."""
    max_watts: float | None = Field(default=None, gt=0)
    rack_units: int | None = Field(default=None, gt=0)
    price_usd: float | None = Field(default=None, gt=0)
    note: str = ""


@functools.cache
def machines() -> FactTable[Machine]:
    return read_toml("machine", Machine, "machines.toml")


class StagedCopy(Fact):
    """One machine: the median over its pairs of GPUs of CUDA's p2pBandwidthLatencyTest with
    peer access off."""

    gpu: str
    gpus: int = Field(gt=1)
    link: str
    """The slower slot of a pair, a row of the links."""
    slot_known_by: Literal["source", "rate"]
    """`rate`: no lesser slot of the GPU could carry what was measured."""
    one_way_gb_per_second: float = Field(gt=0)
    both_ways_gb_per_second: float | None = Field(None, gt=0)
    """Both directions together, at the same time."""
    peer_gb_per_second: float | None = Field(None, gt=0)
    """One way over the same slots with peer access."""
    note: str = ""

    @property
    def one_way_share(self) -> float:
        """Of the slot's effective rate."""
        return self.one_way_gb_per_second / links().get(self.link).effective_gb_per_second

    @property
    def both_ways_share(self) -> float | None:
        """Of the slot's effective rate in each direction."""
        if self.both_ways_gb_per_second is None:
            return None
        return self.both_ways_gb_per_second / 2 / links().get(self.link).effective_gb_per_second


@functools.cache
def staged_copies() -> FactTable[StagedCopy]:
    return read_csv("staged copy", StagedCopy, "staged_copies.csv")


class EndOfLife(Fact):
    """One architecture, whose name is the id."""

    cuda_last: str
    cuda_dropped: str
    cuda_dropped_in: str
    pytorch: str
    """What is left of PyTorch's support, as half a sentence."""

    @property
    def words(self) -> str:
        """For a cell of a table: "up to 12.9"."""
        return f"up to {self.cuda_last}"

    @property
    def sentence(self) -> str:
        """What somebody who is about to take such a GPU should know."""
        return (
            f"{self.id} GPUs are at the end of their software's life: CUDA {self.cuda_dropped} "
            f"({self.cuda_dropped_in}) dropped them, {self.cuda_last} is the last; {self.pytorch}."
        )


@functools.cache
def ends_of_life() -> FactTable[EndOfLife]:
    return read_toml("architecture at its software's end", EndOfLife, "software.toml")


def end_of_life(gpu: Gpu) -> EndOfLife | None:
    """None: current software supports it."""
    known = gpu.vendor == "NVIDIA" and gpu.architecture in ends_of_life()
    return ends_of_life().get(gpu.architecture) if known else None


def ends_of(gpus: Iterable[Gpu]) -> list[EndOfLife]:
    """Of these GPUs, each architecture once, the oldest first."""
    found = {end.id: end for gpu in gpus if (end := end_of_life(gpu))}
    return [end for end in ends_of_life() if end.id in found]


class Cpu(Fact):
    """One CPU by what it offers cards; its lanes are those that reach slots, without those of the chipset."""

    name: str
    vendor: Literal["Intel", "AMD"]
    family: str
    cores: int = Field(gt=0)
    most_sockets: int = Field(gt=0)
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: int = Field(gt=0)
    lanes_of_two: int | None = Field(default=None, gt=0)
    """Of two sockets together: AMD's give lanes to each other."""
    note: str = ""

    def lanes(self, sockets: int) -> int:
        """Of all sockets of a machine; a mistake where it can't have so many."""
        if sockets > self.most_sockets:
            raise UserMistake(
                f"{self.id} goes into machines with up to {self.most_sockets} sockets, got {sockets}"
            )
        if sockets == 2 and self.lanes_of_two is not None:
            return self.lanes_of_two
        return sockets * self.pcie_lanes


@functools.cache
def cpus() -> FactTable[Cpu]:
    return read_toml("CPU", Cpu, "cpus.toml")
