"""One collective of one size: its buffers, how it is run, and whether the result is right."""

from collections.abc import Sequence
from typing import Protocol

import torch

from gpuyard.measure.collectives.records import Operation

_ELEMENT_BYTES = 4
# small whole numbers: their sums over 250 ranks are below 2^24, so float32 adds them without rounding
_PATTERN = 251
_BLOCK = _PATTERN * 4096  # filled and checked in pieces, so that a gigabyte needs little beside it


class RankGroup(Protocol):
    """The ranks as a backend sees them; `part` is one rank's share of the `whole`."""

    rank: int
    count: int

    def clock(self) -> float: ...
    def barrier(self) -> None: ...
    def slowest(self, seconds: Sequence[float]) -> list[float]: ...
    def zeros(self, elements: int) -> torch.Tensor: ...
    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None: ...
    def send(self, out: torch.Tensor, source: int, target: int) -> None: ...
    def all_reduce(self, whole: torch.Tensor) -> None: ...
    def broadcast(self, whole: torch.Tensor) -> None: ...
    def reduce(self, whole: torch.Tensor) -> None: ...
    def all_gather(self, part: torch.Tensor, whole: torch.Tensor) -> None: ...
    def reduce_scatter(self, whole: torch.Tensor, part: torch.Tensor) -> None: ...


class Exchange:
    """float32, as gradients are. `size_bytes` is that of the whole, as nccl-tests counts it."""

    def __init__(self, operation: Operation, size_bytes: int, group: RankGroup) -> None:
        self.operation, self._group = operation, group
        self._part_elements = size_bytes // _ELEMENT_BYTES // group.count
        self._whole = group.zeros(self._part_elements * group.count)
        self._numbers = (torch.arange(_BLOCK + _PATTERN) % _PATTERN + 1).to(self._whole)
        split = operation in ("all_gather", "reduce_scatter")
        self._part = group.zeros(self._part_elements) if split else None

    def run(self) -> None:
        match self.operation, self._part:
            case "all_gather", torch.Tensor() as part:
                self._group.all_gather(part, self._whole)
            case "reduce_scatter", torch.Tensor() as part:
                self._group.reduce_scatter(self._whole, part)
            case "broadcast", _:
                self._group.broadcast(self._whole)
            case "reduce", _:
                self._group.reduce(self._whole)
            case _:
                self._group.all_reduce(self._whole)

    def fill(self) -> None:
        """Numbers that differ by rank and place."""
        filled = self._part if self.operation == "all_gather" else self._whole
        if filled is not None:
            for start in range(0, filled.numel(), _BLOCK):
                block = filled[start : start + _BLOCK]
                block.copy_((self._group.rank + 1) * self._pattern(start, block.numel()))

    def clear(self) -> None:
        """Zeros, which stay zeros however often they are added."""
        self._whole.zero_()
        if self._part is not None:
            self._part.zero_()

    def is_right(self) -> bool:
        """Whether this rank holds what it must after `fill` and `run`."""
        ranks, elements = self._group.count, self._part_elements
        total = ranks * (ranks + 1) // 2
        match self.operation, self._part:
            case "all_gather", _:
                return all(
                    self._holds(self._whole[rank * elements : (rank + 1) * elements], rank + 1)
                    for rank in range(ranks)
                )
            case "reduce_scatter", torch.Tensor() as part:
                return self._holds(part, total, self._group.rank * elements)
            case "broadcast", _:
                return self._holds(self._whole, 1)
            case "reduce", _ if self._group.rank != 0:
                return True  # what the others hold is not defined
            case _:
                return self._holds(self._whole, total)

    def _holds(self, tensor: torch.Tensor, times: int, offset: int = 0) -> bool:
        for start in range(0, tensor.numel(), _BLOCK):
            block = tensor[start : start + _BLOCK]
            if not torch.equal(block, times * self._pattern(offset + start, block.numel())):
                return False
        return True

    def _pattern(self, start: int, elements: int) -> torch.Tensor:
        first = start % _PATTERN
        return self._numbers[first : first + elements]
