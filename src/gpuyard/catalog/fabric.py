"""Catalog tables for networks and storage: switches, cables, storage options, and the read rates of training."""

import datetime
import functools
from typing import Literal

from pydantic import Field, model_validator

from gpuyard.catalog.tables import Fact, FactTable, read_csv, read_toml

PriceBasis = Literal["listed", "estimate"]
ESTIMATE_YEAR = 2026
"""The year of every estimate in switches.toml and cables.toml; a row's date is that of its other facts."""


def _format_price_date(basis: PriceBasis, date: datetime.date) -> str:
    """Format the date of a price; an estimate has the year in which it was made, whatever its row's date."""
    return f"{ESTIMATE_YEAR}, estimate" if basis == "estimate" else f"{date}, {basis}"


class Switch(Fact):
    """A switch.

    All `ports` have the rate `port_gbit_per_second`. If a switch also has faster uplinks, the `ports` are downlinks only.
    `link` is the row of the links table for a machine's card on a port. A director is a chassis in which leaf boards carry
    the ports and spine boards connect their chips. Power and price are listed or estimated.
    """

    name: str
    kind: Literal["ethernet", "infiniband"]
    link: str
    ports: int = Field(gt=1)
    port_gbit_per_second: float = Field(gt=0)
    uplink_ports: int = Field(default=0, ge=0)
    uplink_gbit_per_second: float | None = Field(default=None, gt=0)
    cages: int | None = Field(default=None, gt=0)
    rack_units: float = Field(ge=0)
    max_watts: float | None = Field(default=None, gt=0)
    watts_basis: PriceBasis | None = None
    supplies: int | None = Field(default=None, gt=0)
    """Power supplies; by default, twice the number needed."""
    weight_kg: float | None = Field(default=None, gt=0)
    price_usd: float | None = Field(default=None, gt=0)
    price_basis: PriceBasis | None = None
    card_price_usd: float = Field(ge=0)
    """Estimated price of the card at the machine's end of a port."""
    discontinued: bool = False
    """No longer sold new: designs may name it, but gpuyard never proposes it."""
    small: bool = False
    """For a few machines: gpuyard never proposes a fabric of several."""
    leaf_boards: int | None = Field(default=None, gt=0)
    ports_per_leaf_board: int | None = Field(default=None, gt=0)
    spine_boards: int | None = Field(default=None, gt=0)
    chip_ports: int | None = Field(default=None, gt=0)
    note: str = ""

    @model_validator(mode="after")
    def _check_boards_and_uplinks(self) -> "Switch":
        boards = (
            self.leaf_boards,
            self.ports_per_leaf_board,
            self.spine_boards,
            self.chip_ports,
        )
        if any(boards) and not all(boards):
            raise ValueError(f"{self.id} is a director with some of its boards unknown")
        if bool(self.uplink_ports) != (self.uplink_gbit_per_second is not None):
            raise ValueError(f"{self.id} has uplinks without a rate, or a rate without uplinks")
        return self

    @property
    def price_as_of(self) -> str:
        return _format_price_date(self.price_basis, self.date) if self.price_basis else ""

    @property
    def director(self) -> bool:
        return self.leaf_boards is not None

    @property
    def up_gbit_per_second(self) -> float:
        """The rate of a port that connects to a higher switch."""
        return self.uplink_gbit_per_second or self.port_gbit_per_second

    @property
    def port_bytes_per_second(self) -> float:
        return self.port_gbit_per_second * 1e9 / 8


@functools.cache
def switches() -> FactTable[Switch]:
    return read_toml("switch", Switch, "switches.toml")


CableKind = Literal["twisted-pair", "dac", "acc", "aoc", "optics"]


class Cable(Fact):
    """A type of cable with its connectors. It has a price per cable and a price per meter."""

    name: str
    kind: CableKind
    gbit_per_second: float = Field(gt=0)
    lengths_m: tuple[float, ...] = Field(min_length=1)
    price_usd: float = Field(gt=0)
    price_usd_per_m: float = Field(ge=0)
    price_basis: PriceBasis
    watts: float = Field(ge=0)
    note: str = ""

    @property
    def price_as_of(self) -> str:
        return _format_price_date(self.price_basis, self.date)

    @property
    def reach_m(self) -> float:
        return self.lengths_m[-1]

    def choose_length_m(self, needed_m: float) -> float:
        """Return the shortest available length that is long enough."""
        return next(length for length in self.lengths_m if length >= needed_m)

    def cost_usd(self, length_m: float) -> float:
        return self.price_usd + self.price_usd_per_m * length_m


@functools.cache
def cables() -> FactTable[Cable]:
    return read_toml("cable", Cable, "cables.toml")


StorageKind = Literal["local", "server", "parallel"]


class StorageOption(Fact):
    """A storage option. Its rates are per unit: a machine's own drives, a server, or an appliance.

    `max_units` is the largest number of units in one system; it is an estimate beyond the largest system that was built.
    """

    name: str
    kind: StorageKind
    license: Literal["open-source", "proprietary", "hardware"]
    unit: str
    read_gb_per_second: float = Field(gt=0)
    write_gb_per_second: float = Field(gt=0)
    capacity_tb: float = Field(gt=0)
    max_units: int = Field(gt=0)
    basis: Literal["measured", "estimate"]
    note: str = ""

    @property
    def read_bytes_per_second(self) -> float:
        return self.read_gb_per_second * 1e9

    @property
    def write_bytes_per_second(self) -> float:
        return self.write_gb_per_second * 1e9

    @property
    def capacity_bytes(self) -> float:
        return self.capacity_tb * 1e12


@functools.cache
def storage_options() -> FactTable[StorageOption]:
    return read_toml("storage option", StorageOption, "storage.toml")


class StorageNeed(Fact):
    """The read rate of a model on a GPU that never waits: samples per second, and bytes per record."""

    model: str
    gpu: str
    batch_per_gpu: int = Field(gt=0)
    step_seconds: float = Field(gt=0)
    record_bytes: float = Field(gt=0)
    min_utilization: float = Field(gt=0, le=1)
    """The GPU utilization that the benchmark requires for a valid result."""

    @property
    def samples_per_second(self) -> float:
        return self.batch_per_gpu / self.step_seconds

    @property
    def read_bytes_per_second(self) -> float:
        return self.samples_per_second * self.record_bytes


@functools.cache
def storage_needs() -> FactTable[StorageNeed]:
    return read_csv("storage need", StorageNeed, "storage_needs.csv")
