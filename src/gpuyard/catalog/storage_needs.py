"""What a GPU reads in training, as a published benchmark of storage has it."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv


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
