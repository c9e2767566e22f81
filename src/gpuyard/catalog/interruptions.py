"""Published interruption rates: failures of GPUs by architecture, and spot instances that clouds reclaimed."""

import functools
from typing import Literal

from pydantic import Field, model_validator

from gpuyard.catalog.tables import Fact, FactTable, read_toml


class Interruption(Fact):
    """One publication about failures, or about a cloud's spot instances."""

    kind: Literal["failure", "spot"]
    architecture: str = ""
    """The architecture of the GPUs that failed; empty if it is not named."""
    gpu_hours: float | None = Field(default=None, gt=0)
    """Mean time between failures of one GPU."""
    cloud: str = ""
    instances: str = ""
    """The start of the instances' names."""
    monthly_low: float | None = Field(default=None, gt=0, lt=1)
    """The share of instances that the cloud reclaimed in a month."""
    monthly_high: float | None = Field(default=None, gt=0, lt=1)
    note: str = ""

    @model_validator(mode="after")
    def _check_kind(self) -> "Interruption":
        if (self.kind == "failure") != (self.gpu_hours is not None):
            raise ValueError(f"{self.id}: a failure row has gpu_hours, a spot row has none")
        if (self.kind == "spot") != bool(self.cloud and self.instances and self.monthly_low):
            raise ValueError(f"{self.id}: a spot row has a cloud, instances, and a monthly share")
        return self


@functools.cache
def interruptions() -> FactTable[Interruption]:
    return read_toml("interruption rate", Interruption, "interruptions.toml")
