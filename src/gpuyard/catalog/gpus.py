"""The GPUs: how fast they compute at best, how much they hold, and what connects them."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_toml
from gpuyard.errors import UnknownName

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")


class Gpu(Fact):
    """One GPU as software sees it: a K80 board is two of these, an MI250X package is one.

    Peaks are dense (no 2:4 sparsity) with fp32 accumulation: the tensor- or matrix-core rate where
    there are such cores, else the vector rate. A precision that the hardware lacks, or runs only at
    a token rate, is left out.
    """

    name: str
    vendor: Literal["NVIDIA", "AMD"]
    architecture: str
    form_factor: str
    released: int = Field(ge=2010, le=2030)
    memory_gb: float = Field(gt=0)
    memory_bandwidth_gb_per_second: float = Field(gt=0)
    fp32_tflops: float = Field(gt=0)
    tf32_tflops: float | None = Field(default=None, gt=0)
    fp16_tflops: float | None = Field(default=None, gt=0)
    bf16_tflops: float | None = Field(default=None, gt=0)
    fp8_tflops: float | None = Field(default=None, gt=0)
    board_watts: float = Field(gt=0)
    pcie_generation: int = Field(ge=2, le=7)
    pcie_lanes: Literal[4, 8, 16]
    nvlink_generation: int | None = Field(default=None, ge=1, le=6)
    nvlink_links: int | None = Field(default=None, ge=1)
    nvlink_link: str | None = None
    """The row of the links table, where it is not the usual one of the generation."""
    nvlink_bridge: bool = False
    """NVLink reaches only the card on the other side of a bridge, never a switch."""
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
def gpus() -> Table[Gpu]:
    return read_toml("GPU", Gpu, "gpus.toml")
