"""What copies between two GPUs reach without peer access, as people published it of their machines."""

import functools
from typing import Literal

from pydantic import Field

from gpuyard.catalog.links import links
from gpuyard.catalog.tables import Fact, Table, read_csv


class StagedCopy(Fact):
    """One machine: the median over its pairs of GPUs of CUDA's p2pBandwidthLatencyTest with
    peer access off."""

    gpu: str
    gpus: int = Field(gt=1)
    link: str
    """The slower slot of a pair, a row of the links."""
    slot_known_by: Literal["source", "rate"]
    """`rate`: no lesser slot of the GPU could carry what was measured."""
    one_way_gb_per_second: float = Field(gt=0)
    both_ways_gb_per_second: float | None = Field(None, gt=0)
    """Both directions together, at the same time."""
    peer_gb_per_second: float | None = Field(None, gt=0)
    """One way over the same slots with peer access."""
    note: str = ""

    @property
    def one_way_share(self) -> float:
        """Of the slot's effective rate."""
        return self.one_way_gb_per_second / links().get(self.link).effective_gb_per_second

    @property
    def both_ways_share(self) -> float | None:
        """Of the slot's effective rate in each direction."""
        if self.both_ways_gb_per_second is None:
            return None
        return self.both_ways_gb_per_second / 2 / links().get(self.link).effective_gb_per_second


@functools.cache
def staged_copies() -> Table[StagedCopy]:
    return read_csv("staged copy", StagedCopy, "staged_copies.csv")
