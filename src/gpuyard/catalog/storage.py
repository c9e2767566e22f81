"""Ways to keep samples and checkpoints, and what a GPU reads in training."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv, read_toml

StorageKind = Literal["local", "server", "parallel"]


class StorageOption(Fact):
    """One way. Rates are of one unit: a machine's own drives, a server, or an appliance; `most_units`
    is how many may stand side by side in one system: every figure above what was built is an estimate.
    """

    name: str
    kind: StorageKind
    licence: Literal["open-source", "proprietary", "hardware"]
    unit: str
    read_gb_per_second: float = Field(gt=0)
    write_gb_per_second: float = Field(gt=0)
    capacity_tb: float = Field(gt=0)
    most_units: int = Field(gt=0)
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
def storage_options() -> Table[StorageOption]:
    return read_toml("storage option", StorageOption, "storage.toml")


class StorageNeed(Fact):
    """One model on one GPU: samples a second while it never waits, and bytes of a record."""

    model: str
    gpu: str
    batch_per_gpu: int = Field(gt=0)
    step_seconds: float = Field(gt=0)
    record_bytes: float = Field(gt=0)
    least_utilisation: float = Field(gt=0, le=1)
    """The share of its time that the GPU must be busy for the benchmark to count."""

    @property
    def samples_per_second(self) -> float:
        return self.batch_per_gpu / self.step_seconds

    @property
    def read_bytes_per_second(self) -> float:
        return self.samples_per_second * self.record_bytes


@functools.cache
def storage_needs() -> Table[StorageNeed]:
    return read_csv("storage need", StorageNeed, "storage_needs.csv")
