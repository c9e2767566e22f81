"""What clouds ask for their GPU instances. `scripts/import_prices.py` writes the data file; show
the date wherever a price is shown."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv


class Price(Fact):
    """One instance of one cloud, on demand, per hour. `gpu` is None where the GPU table has no such
    GPU or the cloud does not say which variant it rents out; `gpu_name` is the cloud's own word."""

    cloud: str
    instance: str
    region: str | None = None
    gpu: str | None = None
    gpu_name: str
    gpus: int = Field(gt=0)
    vcpus: float | None = Field(default=None, gt=0)
    memory_gib: float | None = Field(default=None, gt=0)
    usd_per_hour: float = Field(gt=0)
    spot_usd_per_hour: float | None = Field(default=None, gt=0)
    note: str = ""


@functools.cache
def prices() -> Table[Price]:
    return read_csv("price", Price, "prices.csv")
