"""What clouds ask for data: keeping it there, and taking it out."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, Table, read_csv

ASSUMED_CLOUD = "aws"
"""Stands in for clouds whose prices of data are not in the table."""


class CloudData(Fact):
    """One cloud's list prices, in US dollars a GB (and month)."""

    storage_usd_per_gb_month: float = Field(ge=0)
    egress_usd_per_gb: float = Field(ge=0)
    free_egress_gb_per_month: float = Field(ge=0)
    note: str = ""


@functools.cache
def cloud_data() -> Table[CloudData]:
    return read_csv("cloud's prices of data", CloudData, "cloud_data.csv")
