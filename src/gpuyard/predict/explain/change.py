"""One remedy, as a curve over the number of GPUs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.predict.placement import Placement
from gpuyard.predict.step import Floats

Curve = Callable[[Sequence[Placement]], Floats]


@dataclass(frozen=True)
class Change:
    """What is changed, and what it brings and costs for any number of GPUs."""

    what: str
    samples_per_second: Curve
    caveat: str = ""
    memory_bytes: float | None = None
