"""A trainable task: a module, synthetic batches for it, and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """A module with its loss; `batch(n)` creates inputs and target of n samples on the default device.

    Build a task and its batches under `with torch.device(...)`. The device "meta" needs no memory, so a model
    far larger than this machine can be profiled.
    """

    model: nn.Module
    batch: Callable[[int], tuple[tuple[Tensor, ...], Tensor]]
    loss: Callable[[Any, Tensor], Tensor]
    sample: str
