"""A task is anything that can be trained: a module, synthetic batches for it, and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """`batch(n)` makes the inputs and the target of n samples on torch's default device.

    Build a task and its batches under `with torch.device(...)`: "meta" costs no memory, which is
    how a model far larger than this machine is profiled.
    """

    model: nn.Module
    batch: Callable[[int], tuple[tuple[Tensor, ...], Tensor]]
    loss: Callable[[Any, Tensor], Tensor]
    sample: str
