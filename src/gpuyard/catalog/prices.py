"""Catalog tables of prices: cloud instances and their networks, cloud data, and the parts of a machine.

The sum of the parts (GPUs, chassis, network ports) estimates the price of a server without a list price.
`scripts/import_prices.py` writes the table of instances. Every answer that shows a price also shows its date.
"""

import csv
import datetime
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from gpuyard import files
from gpuyard.catalog.hardware import Gpu, gpus, links, machines
from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml
from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.printable import find_control_character
from gpuyard.specs import Network, Protocol, Topology
from gpuyard.specs.spec_errors import explain_value

_MAX_CELL_CHARACTERS = 1000
_MAX_ROWS = 20_000


_CLOUDS = {
    "aws": "AWS", "azure": "Azure", "coreweave": "CoreWeave", "cudo": "CUDO Compute", "do": "DigitalOcean",
    "fluidstack": "Fluidstack", "gcp": "Google Cloud", "hyperbolic": "Hyperbolic", "hyperstack": "Hyperstack",
    "ibm": "IBM Cloud", "lambda": "Lambda", "nebius": "Nebius", "oci": "Oracle Cloud", "ovhcloud": "OVHcloud",
    "paperspace": "Paperspace", "primeintellect": "Prime Intellect", "runpod": "RunPod", "scaleway": "Scaleway",
    "seeweb": "Seeweb", "shadeform": "Shadeform", "vast": "Vast.ai", "verda": "Verda", "yotta": "Yotta",
}  # fmt: skip
_NAMED_INSTANCES = ("aws", "azure", "gcp", "ibm", "oci")
"""Clouds whose customers know the instances by name."""
_BRANDS = re.compile(r"^(GeForce|Tesla|Instinct) | \(.*\)$")


class Price(Fact):
    """The on-demand price of a cloud instance per hour.

    `gpu` is None if the GPU table lacks the GPU or the cloud does not name its variant; `gpu_name` is the cloud's name.
    """

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

    @property
    def full_name(self) -> str:
        """The cloud's own name in lower case, like `gcp/a3-highgpu-8g`; often the same as the id."""
        return f"{self.cloud}/{self.instance}".lower()

    @property
    def title(self) -> str:
        """The GPUs and the cloud, like "4 × RTX 5070 at Vast.ai" or "8 × H100 SXM5 80 GB at AWS (p5.48xlarge)"."""
        gpu = _BRANDS.sub("", gpus().get(self.gpu).name if self.gpu else self.gpu_name)
        instance = f" ({self.instance})" if self.cloud in _NAMED_INSTANCES else ""
        return f"{self.gpus} × {gpu} at {_CLOUDS.get(self.cloud, self.cloud)}{instance}"

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.gpus


def prices() -> FactTable[Price]:
    """Return the table that `gpuyard prices update` has stored, otherwise the shipped one."""
    stored = files.prices_file()
    if not stored.is_file():
        return shipped_prices()
    status = stored.stat()
    return _read_stored(stored, status.st_mtime_ns, status.st_size)


@functools.cache
def shipped_prices() -> FactTable[Price]:
    return read_csv("price", Price, "prices.csv")


@functools.cache
def past_prices() -> FactTable[Price]:
    """Return earlier prices, with the day in the id: `aws/p3dn.24xlarge@2022-10-11`."""
    return read_csv("past price", Price, "past_prices.csv")


def find_price(name: str) -> Price:
    """Return a current price by its id or by cloud and instance, or an earlier one if the name has a date."""
    if "@" in name:
        return past_prices().get(name)
    matches = [price for price in prices() if price.full_name == name.lower()]
    return matches[0] if len(matches) == 1 else prices().get(name)


def find_cheapest_price(gpu: str, gpus: int | None = None) -> Price | None:
    """Return the cheapest on-demand price per GPU; that of machines with `gpus` GPUs is preferred. None without any."""
    offers = [price for price in prices() if price.gpu == gpu]
    whole = [price for price in offers if price.gpus == gpus]
    return min(whole or offers, key=lambda price: price.usd_per_gpu_hour, default=None)


def newest_date(table: FactTable[Price]) -> datetime.date:
    """Return the date of the newest price, which stands for the whole table."""
    return max(price.date for price in table)


def read_price_table(text: str, name: str) -> FactTable[Price]:
    """Read and check a table with the columns of the shipped one. Errors name file, line, and column."""
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) > _MAX_ROWS:
        raise UserMistake(f"{name}: more than {_MAX_ROWS:,} lines")
    try:
        return _parse_price_table(csv.DictReader(lines, strict=True), name)
    except csv.Error as error:
        raise UserMistake(f"{name}: this is not a CSV table: {error}") from None


def _parse_price_table(rows: "csv.DictReader[str]", name: str) -> FactTable[Price]:
    columns = list(rows.fieldnames or [])
    required = [key for key, field in Price.model_fields.items() if field.is_required()]
    missing = [key for key in required if key not in columns]
    if missing:
        raise UserMistake(
            f"{name}:1: the columns {', '.join(missing)} are missing; a price table has: "
            f"{', '.join(Price.model_fields)}"
        )
    for column in columns:
        if column not in Price.model_fields:
            raise UnknownName(f"column of a price table ({name}:1)", column, Price.model_fields)
    prices: dict[str, Price] = {}
    for row in rows:
        line = f"{name}:{rows.line_num}"
        if None in row:
            raise UserMistake(f"{line}: more cells than the header has columns")
        if None in row.values():
            raise UserMistake(f"{line}: fewer cells than the header has columns")
        _check_text(row, line)
        try:
            price = Price.model_validate({key: cell for key, cell in row.items() if cell})
        except ValidationError as invalid:
            first = invalid.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise UserMistake(f"{line}: {key}: {explain_value(first)}") from None
        if price.id in prices:
            raise UserMistake(f"{line}: duplicate id {price.id!r}")
        prices[price.id] = price
    if not prices:
        raise UserMistake(f"{name}: the table has no prices")
    return FactTable("price", prices.values())


def _check_text(row: Mapping[str, str], line: str) -> None:
    for key, cell in row.items():
        if len(cell) > _MAX_CELL_CHARACTERS:
            raise UserMistake(f"{line}: {key}: must have at most {_MAX_CELL_CHARACTERS} characters")
        if (control := find_control_character(cell)) is not None:
            raise UserMistake(f"{line}: {key}: cannot contain control characters, got {control}")


@functools.lru_cache(maxsize=1)
def _read_stored(path: Path, changed_ns: int, size: int) -> FactTable[Price]:
    """Read the stored table once until the file changes."""
    del changed_ns, size
    try:
        return read_price_table(path.read_text(encoding="utf-8"), str(path))
    except (UserMistake, OSError, UnicodeDecodeError) as error:
        raise GpuyardError(
            f"the stored prices cannot be used: {error}; restore the shipped prices with: "
            "gpuyard prices reset"
        ) from None


ASSUMED_CLOUD = "aws"
"""The cloud whose data prices gpuyard uses for clouds that are not in the table."""


class CloudDataPrice(Fact):
    """The list prices of a cloud in US dollars per GB (and month)."""

    storage_usd_per_gb_month: float = Field(ge=0)
    egress_usd_per_gb: float = Field(ge=0)
    free_egress_gb_per_month: float = Field(ge=0)
    note: str = ""


@functools.cache
def cloud_data() -> FactTable[CloudDataPrice]:
    return read_csv("cloud with data prices", CloudDataPrice, "cloud_data.csv")


class InstanceNetwork(Fact):
    """The network of an instance, with the id of its price: `rails` cards of a link or a rate."""

    link: str | None = None
    rails: int = Field(default=1, gt=0)
    gbit_per_second: float | None = Field(default=None, gt=0)
    """The rate of one card, if the links table lacks it."""
    protocol: Protocol | None = None
    """The protocol; by default, that of the link."""
    per_flow_gbit_per_second: float | None = Field(default=None, gt=0)
    flows: int = Field(default=1, gt=0)
    """The flows that NCCL opens between two such machines; one if a container hides the card."""
    note: str = ""

    @model_validator(mode="after")
    def _check_link_or_rate(self) -> "InstanceNetwork":
        if (self.link is None) == (self.gbit_per_second is None):
            raise ValueError(f"{self.id} needs either a link or a rate")
        return self

    @property
    def description(self) -> str:
        """A description like "8 × infiniband-ndr" or "50 Gbit/s"."""
        rails = f"{self.rails} × " if self.rails > 1 else ""
        return f"{rails}{self.link or f'{self.gbit_per_second:g} Gbit/s'}"

    @property
    def total_gbit_per_second(self) -> float:
        """The line rate of all cards together."""
        if self.link is None:
            return self.rails * (self.gbit_per_second or 0.0)
        return self.rails * links().get(self.link).raw_gb_per_second * 8

    @property
    def network_protocol(self) -> Protocol:
        """The protocol of the cards."""
        if self.protocol is not None:
            return self.protocol
        rdma = self.link is not None and links().get(self.link).protocol == "rdma"
        return "rdma" if rdma else "tcp"

    @property
    def network(self) -> Network:
        """The network as a part of a cluster spec."""
        keys: dict[str, object] = {"rails": self.rails, "protocol": self.protocol}
        if self.link is not None:
            keys["link"] = self.link
        else:
            keys["rate"] = f"{self.gbit_per_second} Gbit/s"
        if self.per_flow_gbit_per_second is not None:
            keys["per_flow"] = f"{self.per_flow_gbit_per_second} Gbit/s"
            keys["flows"] = self.flows
        return Network.model_validate(keys)


@functools.cache
def instance_networks() -> FactTable[InstanceNetwork]:
    return read_csv("instance with a known network", InstanceNetwork, "instance_networks.csv")


def find_instance_network(price: Price) -> InstanceNetwork | None:
    """Return the network of an instance, or None if its network is not published."""
    name = price.id.partition("@")[0]
    return instance_networks().get(name) if name in instance_networks() else None


class PurchasePrice(Fact):
    """The price of a part, and the range in which a quote is expected."""

    usd: float = Field(gt=0)
    usd_low: float = Field(gt=0)
    usd_high: float = Field(gt=0)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if not self.usd_low <= self.usd <= self.usd_high:
            raise ValueError(f"{self.id}: the price must be in its range")
        return self

    @property
    def price_range(self) -> str:
        """The range as in "3,059 – 3,699", or empty if it is one price."""
        return (
            "" if self.usd_low == self.usd_high else f"{self.usd_low:,.0f} – {self.usd_high:,.0f}"
        )


class GpuListPrice(PurchasePrice):
    """The launch or street price of a GPU. `scripts/import_gpu_prices.py` writes the data file."""

    basis: Literal["launch", "street", "estimate"]
    """The vendor's price at launch, the market price at the row's date, or a proportion of another GPU's."""


class Chassis(PurchasePrice):
    """A machine without its GPUs; `forms` are the form factors of the GPUs that it accepts."""

    name: str
    gpus: tuple[int, ...] = Field(min_length=1)
    forms: tuple[str, ...] = Field(min_length=1)
    topology: Topology
    watts: float = Field(gt=0)


class Port(Fact):
    """The one-time price of connecting a machine to a network; the id is that of the link."""

    usd: float = Field(ge=0)


def fits_chassis(gpu: Gpu, box: Chassis) -> bool:
    """Return whether the GPU fits the chassis."""
    return gpu.form_factor in box.forms


def format_build_id(gpu: Gpu, count: int, box: Chassis) -> str:
    """Format the id of a machine built from parts: "server-sxm5/8x-h100-sxm5-80gb"."""
    return f"{box.id}/{count}x-{gpu.id}"


@functools.cache
def build_ids() -> frozenset[str]:
    """Return the ids of all machines that can be built from parts."""
    return frozenset(
        format_build_id(gpu, count, box)
        for gpu in gpus()
        for box in chassis()
        if fits_chassis(gpu, box)
        for count in box.gpus
    )


@functools.cache
def priced_machine_ids() -> tuple[str, ...]:
    """Return the ids of all machines with a list price, and of all that can be built from parts with a price."""
    listed = (machine.id for machine in machines() if machine.price_usd is not None)
    built = (build for build in build_ids() if build.partition("x-")[2] in gpu_prices())
    return (*listed, *sorted(built))


@functools.cache
def gpu_prices() -> FactTable[GpuListPrice]:
    return read_csv("GPU with a price", GpuListPrice, "gpu_prices.csv")


@functools.cache
def chassis() -> FactTable[Chassis]:
    return read_toml("chassis", Chassis, "chassis.toml")


@functools.cache
def ports() -> FactTable[Port]:
    return read_toml("link with a price", Port, "ports.toml")
