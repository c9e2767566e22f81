"""What clouds ask for GPU instances and for data, and the networks that instances come with; and what parts of a machine
cost: GPUs, the machine around them, and a port of a network. For servers without a price of their own, their sum is an
estimate. `scripts/import_prices.py` writes the table of instances; show the date wherever a price is shown."""

import csv
import datetime
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from gpuyard import files
from gpuyard.catalog.hardware import Gpu, gpus, links
from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml
from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.printable import control_character
from gpuyard.specs import Network, Protocol, Topology
from gpuyard.specs.mistakes import expected_and_got

_LONGEST_CELL = 1000
_MOST_ROWS = 20_000


class Price(Fact):
    """One instance of one cloud, on demand, per hour. `gpu` is None where the GPU table has no such
    GPU or the cloud does not say which variant it rents out; `gpu_name` is the cloud's own word."""

    cloud: str
    instance: str
    region: str | None = None
    gpu: str | None = None
    gpu_name: str
    gpus: int = Field(gt=0, le=100_000)
    vcpus: float | None = Field(default=None, gt=0)
    memory_gib: float | None = Field(default=None, gt=0)
    usd_per_hour: float = Field(gt=0)
    spot_usd_per_hour: float | None = Field(default=None, gt=0)
    note: str = ""


def prices() -> FactTable[Price]:
    """The user's own newer table where `gpuyard prices update` has stored one, else the shipped one."""
    newer = files.prices_file()
    if not newer.is_file():
        return shipped_prices()
    status = newer.stat()
    return _stored(newer, status.st_mtime_ns, status.st_size)


@functools.cache
def shipped_prices() -> FactTable[Price]:
    return read_csv("price", Price, "prices.csv")


@functools.cache
def past_prices() -> FactTable[Price]:
    """Snapshots of other days, with the day in the name: `aws/p3dn.24xlarge@2022-10-11`."""
    return read_csv("past price", Price, "past_prices.csv")


def price_named(name: str) -> Price:
    """A price of today's table, or of a past day where the name has one."""
    return past_prices().get(name) if "@" in name else prices().get(name)


def newest_date(table: FactTable[Price]) -> datetime.date:
    """The date of the newest price: what a table as a whole can be called by."""
    return max(price.date for price in table)


def read_price_table(text: str, name: str) -> FactTable[Price]:
    """A table with the columns of the shipped one, every row checked. Raises with file, line and column."""
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) > _MOST_ROWS:
        raise UserMistake(f"{name}: more than {_MOST_ROWS:,} lines")
    try:
        return _price_table(csv.DictReader(lines, strict=True), name)
    except csv.Error as error:
        raise UserMistake(f"{name}: this is not a table of CSV: {error}") from None


def _price_table(rows: "csv.DictReader[str]", name: str) -> FactTable[Price]:
    columns = list(rows.fieldnames or [])
    needed = [key for key, field in Price.model_fields.items() if field.is_required()]
    missing = [key for key in needed if key not in columns]
    if missing:
        raise UserMistake(
            f"{name}:1: the columns {', '.join(missing)} are missing; a price table has: "
            f"{', '.join(Price.model_fields)}"
        )
    for column in columns:
        if column not in Price.model_fields:
            raise UnknownName(f"column of a price table ({name}:1)", column, Price.model_fields)
    found: dict[str, Price] = {}
    for row in rows:
        where = f"{name}:{rows.line_num}"
        if None in row:
            raise UserMistake(f"{where}: more cells than the header has columns")
        if None in row.values():
            raise UserMistake(f"{where}: fewer cells than the header has columns")
        _check_text(row, where)
        try:
            price = Price.model_validate({key: cell for key, cell in row.items() if cell})
        except ValidationError as invalid:
            first = invalid.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise UserMistake(f"{where}: {key}: {expected_and_got(first)}") from None
        if price.id in found:
            raise UserMistake(f"{where}: two rows are called {price.id!r}")
        found[price.id] = price
    if not found:
        raise UserMistake(f"{name}: there is no price in it")
    return FactTable("price", found.values())


def _check_text(row: Mapping[str, str], where: str) -> None:
    for key, cell in row.items():
        if len(cell) > _LONGEST_CELL:
            raise UserMistake(f"{where}: {key}: takes at most {_LONGEST_CELL} characters")
        if (control := control_character(cell)) is not None:
            raise UserMistake(f"{where}: {key}: can't have control characters, got {control}")


@functools.lru_cache(maxsize=1)
def _stored(path: Path, changed_ns: int, size: int) -> FactTable[Price]:
    """Read once as long as the file stays the same."""
    del changed_ns, size
    try:
        return read_price_table(path.read_text(encoding="utf-8"), str(path))
    except (UserMistake, OSError, UnicodeDecodeError) as broken:
        raise GpuyardError(
            f"the stored prices can't be used: {broken}; go back to the shipped ones with: "
            "gpuyard prices reset"
        ) from None


ASSUMED_CLOUD = "aws"
"""Stands in for clouds whose prices of data are not in the table."""


class CloudDataPrice(Fact):
    """One cloud's list prices, in US dollars a GB (and month)."""

    storage_usd_per_gb_month: float = Field(ge=0)
    egress_usd_per_gb: float = Field(ge=0)
    free_egress_gb_per_month: float = Field(ge=0)
    note: str = ""


@functools.cache
def cloud_data() -> FactTable[CloudDataPrice]:
    return read_csv("cloud's prices of data", CloudDataPrice, "cloud_data.csv")


class InstanceNetwork(Fact):
    """One instance, named like its price: `rails` cards of a row of the links table, or of a rate."""

    link: str | None = None
    rails: int = Field(default=1, gt=0)
    gbit_per_second: float | None = Field(default=None, gt=0)
    """Of one card, where no row of the links table has it."""
    protocol: Protocol | None = None
    """That of the link, if left out."""
    per_flow_gbit_per_second: float | None = Field(default=None, gt=0)
    flows: int = Field(default=1, gt=0)
    """That NCCL opens between two such machines; one, where a container hides the card."""
    note: str = ""

    @model_validator(mode="after")
    def _link_or_rate(self) -> "InstanceNetwork":
        if (self.link is None) == (self.gbit_per_second is None):
            raise ValueError(f"{self.id} has either a link or a rate")
        return self

    @property
    def words(self) -> str:
        """ "8 × infiniband-ndr", "50 Gbit/s"."""
        rails = f"{self.rails} × " if self.rails > 1 else ""
        return f"{rails}{self.link or f'{self.gbit_per_second:g} Gbit/s'}"

    @property
    def total_gbit_per_second(self) -> float:
        """All cards together, on the wire."""
        if self.link is None:
            return self.rails * (self.gbit_per_second or 0.0)
        return self.rails * links().get(self.link).raw_gb_per_second * 8

    @property
    def network_protocol(self) -> Protocol:
        """What the cards speak."""
        if self.protocol is not None:
            return self.protocol
        rdma = self.link is not None and links().get(self.link).protocol == "rdma"
        return "rdma" if rdma else "tcp"

    @property
    def network(self) -> Network:
        """As a cluster describes it."""
        described: dict[str, object] = {"rails": self.rails, "protocol": self.protocol}
        if self.link is not None:
            described["link"] = self.link
        else:
            described["rate"] = f"{self.gbit_per_second} Gbit/s"
        if self.per_flow_gbit_per_second is not None:
            described["per_flow"] = f"{self.per_flow_gbit_per_second} Gbit/s"
            described["flows"] = self.flows
        return Network.model_validate(described)


@functools.cache
def instance_networks() -> FactTable[InstanceNetwork]:
    return read_csv("instance with a known network", InstanceNetwork, "instance_networks.csv")


def network_of_instance(price: Price) -> InstanceNetwork | None:
    """None where nobody is known to say how such instances are joined."""
    name = price.id.partition("@")[0]
    return instance_networks().get(name) if name in instance_networks() else None


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
