"""Which GPUs current CUDA and PyTorch have left behind, since which version and day."""

import functools
from collections.abc import Iterable

from gpuyard.catalog.hardware import Gpu
from gpuyard.catalog.tables import Fact, Table, read_toml


class EndOfLife(Fact):
    """One architecture, whose name is the id."""

    cuda_last: str
    cuda_dropped: str
    cuda_dropped_in: str
    pytorch: str
    """What is left of PyTorch's support, as half a sentence."""

    @property
    def words(self) -> str:
        """For a cell of a table: "up to 12.9"."""
        return f"up to {self.cuda_last}"

    @property
    def sentence(self) -> str:
        """What somebody who is about to take such a GPU should know."""
        return (
            f"{self.id} GPUs are at the end of their software's life: CUDA {self.cuda_dropped} "
            f"({self.cuda_dropped_in}) dropped them, {self.cuda_last} is the last; {self.pytorch}."
        )


@functools.cache
def ends_of_life() -> Table[EndOfLife]:
    return read_toml("architecture at its software's end", EndOfLife, "software.toml")


def end_of_life(gpu: Gpu) -> EndOfLife | None:
    """None: current software supports it."""
    known = gpu.vendor == "NVIDIA" and gpu.architecture in ends_of_life()
    return ends_of_life().get(gpu.architecture) if known else None


def ends_of(gpus: Iterable[Gpu]) -> list[EndOfLife]:
    """Of these GPUs, each architecture once, the oldest first."""
    found = {end.id: end for gpu in gpus if (end := end_of_life(gpu))}
    return [end for end in ends_of_life() if end.id in found]
