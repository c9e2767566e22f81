"""What parts of a machine cost: GPUs, the machine around them, and a port of a network. For servers
without a price of their own, their sum is an estimate."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.hardware import Gpu, gpus
from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml
from gpuyard.specs import Topology


class GpuListPrice(Fact):
    """A launch or street price. `scripts/import_gpu_prices.py` writes the data file."""

    usd: float = Field(gt=0)
    basis: Literal["launch", "street"]
    """The maker's price of the day on which it came out, or what it was sold for on the list's day."""


class Chassis(Fact):
    """A machine without its GPUs; `form` is how the GPUs go in, PCIe or SXM."""

    name: str
    gpus: tuple[int, ...] = Field(min_length=1)
    form: str
    topology: Topology
    usd: float = Field(gt=0)
    watts: float = Field(gt=0)


class Port(Fact):
    """Joining one machine to a network once; the id is that of the link."""

    usd: float = Field(ge=0)


def fits(gpu: Gpu, box: Chassis) -> bool:
    """Whether the GPU goes into the chassis."""
    form = "SXM" if gpu.form_factor.startswith(("SXM", "OAM")) else gpu.form_factor
    return form == box.form


def build_id(gpu: Gpu, count: int, box: Chassis) -> str:
    """What a machine from parts is called: "server-sxm/8x-h100-sxm5-80gb"."""
    return f"{box.id}/{count}x-{gpu.id}"


@functools.cache
def build_ids() -> frozenset[str]:
    """Every machine that could be put together."""
    return frozenset(
        build_id(gpu, count, box)
        for gpu in gpus()
        for box in chassis()
        if fits(gpu, box)
        for count in box.gpus
    )


@functools.cache
def gpu_prices() -> FactTable[GpuListPrice]:
    return read_csv("GPU with a price", GpuListPrice, "gpu_prices.csv")


@functools.cache
def chassis() -> FactTable[Chassis]:
    return read_toml("chassis", Chassis, "chassis.toml")


@functools.cache
def ports() -> FactTable[Port]:
    return read_toml("link with a price", Port, "ports.toml")
