"""Published speeds of training under a power cap: one curve per publication, GPU, and model."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv


class PowerPoint(Fact):
    """The speed at one cap, relative to the rated power, and the mean power of the GPU if it was measured."""

    curve: str
    gpu: str
    architecture: str
    model: str
    rated_watts: float = Field(gt=0)
    cap_watts: float = Field(gt=0)
    speed: float = Field(gt=0, le=1.1)
    watts: float | None = Field(default=None, gt=0)


@functools.cache
def power_caps() -> FactTable[PowerPoint]:
    return read_csv("power cap", PowerPoint, "power_caps.csv")
