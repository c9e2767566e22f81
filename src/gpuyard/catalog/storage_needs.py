"""How long MLPerf Storage lets an accelerator compute for one batch, and how large a record is."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv


class StorageNeed(Fact):
    """One model on one accelerator. MLPerf says H100 and A100; the rows name the usual form of each."""

    model: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    batch: int = Field(gt=0)
    computation_seconds: float = Field(gt=0)
    record_bytes: float = Field(gt=0)
    least_utilisation: float = Field(gt=0, le=1)


@functools.cache
def storage_needs() -> Table[StorageNeed]:
    """The training workloads of MLPerf Storage."""
    return read_csv("storage need", StorageNeed, "storage_needs.csv")
